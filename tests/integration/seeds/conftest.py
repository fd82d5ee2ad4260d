"""A hub with our kernels for the CPU, as a user would publish them. The group's budget: four minutes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from lacking import require_commands

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
KERNELS = ("activation", "gemm", "triton-layer-norm")
# What the caller's own settings would change.
OWN = ("KERNELS_", "LOCAL_KERNELS", "HF_", "DISABLE_KERNEL_MAPPING", "KERNEL_")


@pytest.fixture(scope="session")
def run() -> Callable[..., str]:
    """Run a command, ``run(*words, cwd=, code=0, more={})``; returns its output, errors last."""
    require_commands("g++")

    def run(*words: object, cwd: Path, code: int = 0, more: Mapping[str, str] | None = None) -> str:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(OWN)}
        # One thread: on a busy machine more of them wait for each other.
        kept |= {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            list(map(str, words)),
            cwd=cwd,
            env=kept | dict(more or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def hub(run, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A folder with our kernels, and the variables that a process needs to load from it."""
    home = tmp_path_factory.mktemp("org")
    root = home / "hub"
    for name in KERNELS:
        project = home / "kernels-community" / name
        leave_out = shutil.ignore_patterns("build", "__pycache__")
        shutil.copytree(ROOT / "kernels-community" / name, project, ignore=leave_out)
        run("kernel-builder", "build", project, "--backend", "cpu", cwd=home)
        run("kernel-builder", "upload", project, "--hub", root.as_uri(), cwd=home)
    environ = {"KERNELS_HUB": root.as_uri(), "KERNELS_CACHE": str(home / "cache")}
    return SimpleNamespace(root=root, environ=environ)
