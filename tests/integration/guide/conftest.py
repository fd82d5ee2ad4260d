"""Readers of the guides, who type what a page says, and a hub with the kernels of this project.

Time budget of this folder: six minutes on two cores, of which builds of our kernels for the CPU are one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lacking import require_commands

ROOT = Path(__file__).parents[3]
KERNELS = ("activation", "gemm", "img2gray", "triton-layer-norm")


class Reader:
    """Somebody who types what a guide says, in one directory and environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        keep = {name: os.environ[name] for name in ("TMPDIR", "LANG", "CI") if name in os.environ}
        self.environ = keep | {
            "PATH": path,
            "HOME": str(folder),
            "KERNELS_CACHE": str(folder / "cache"),
            "PYTHONPATH": str(ROOT / "src"),
            "NO_PROXY": "*",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.replaced: dict[str, str] = {}

    def type(self, script: str, *, fails: bool = False) -> str:
        """Run a block, and return what it prints; what it exports holds for the next one."""
        for old, new in self.replaced.items():
            script = script.replace(old, new)
        whole = f"set -eu\n{script}\nenv -0 > {self.folder}/environ\n"
        done = subprocess.run(
            ["sh", "-c", whole],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        said = f"{script}\n{done.stdout}\n{done.stderr}"
        assert (done.returncode != 0) == fails, said
        assert "Traceback" not in done.stderr, said
        if fails:
            return done.stdout + done.stderr
        pairs = (self.folder / "environ").read_text().strip("\0").split("\0")
        self.environ = dict(pair.split("=", 1) for pair in pairs)
        return done.stdout

    def run(self, listing: str, *, before: str = "", after: str = "") -> str:
        """Run a Python listing in a process of its own, and return what it prints."""
        (self.folder / "listing.py").write_text(f"{before}\n{listing}\n{after}\n")
        return self.type("python listing.py")


@pytest.fixture(scope="session")
def read() -> Callable[[Path], Reader]:
    """Make another reader, for a folder that is not there yet."""
    return Reader


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path / "here")


@pytest.fixture(scope="session")
def compiler() -> None:
    require_commands("g++")


@pytest.fixture(scope="session")
def builder_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("builder-cache"))


@pytest.fixture(scope="session")
def projects(compiler: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Our kernels, built for the CPU, by name; nobody changes them. Other groups build them, too: objects are shared."""
    top = tmp_path_factory.mktemp("kernels-community")
    found = {}
    for name in KERNELS:
        source, found[name] = ROOT / "kernels-community" / name, top / name
        shutil.copytree(source, found[name], ignore=shutil.ignore_patterns("build", "__pycache__"))
        _build(found[name])
    return found


def _build(project: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "kernel-builder", "build", project, "--backend", "cpu"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def community(projects: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a folder that is a hub and has our kernels, as the builder publishes them."""
    root = tmp_path_factory.mktemp("hub")
    for name, project in projects.items():
        upload = ["upload", project, "--repo-id", f"kernels-community/{name}"]
        subprocess.run(
            [Path(sys.executable).parent / "kernel-builder", *upload, "--hub", root.as_uri()],
            check=True,
            capture_output=True,
        )
    return root.as_uri()
