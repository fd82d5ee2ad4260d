"""Shells with a torch of their own, which pip installs: a gigabyte, and most of a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lacking import give_up

CODE = "import sys; from kernel_builder.cli import main; sys.argv[0] = 'kernel-builder'; main()"


def builder(cache: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run ``kernel-builder`` with a cache of its own."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), **more}
    command = [sys.executable, "-c", CODE, *map(str, words)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def projects(tmp_path: Path) -> tuple[Path, Path]:
    made = []
    for name in ("plus", "other"):
        place = tmp_path / name
        done = builder(tmp_path, "init", place, "--name", f"me/{name}", "--backends", "cpu")
        assert done.returncode == 0, done.stderr
        made.append(place)
    return made[0], made[1]


def test_from_an_empty_cache_to_tests_that_pass(cache: Path, projects: tuple[Path, Path]) -> None:
    plus, other = projects
    code = "import sys, torch; print(torch.__version__, sys.prefix); sys.exit(7)"
    done = builder(cache, "devshell", plus, "--", "python", "-W", "ignore", "-c", code)
    if done.returncode == 1:
        give_up(done.stderr)
    assert done.returncode == 7, done.stderr
    version, prefix = done.stdout.split()
    assert version.startswith("2.13.0")
    assert Path(prefix).is_relative_to(cache)
    assert "this is done once" in done.stderr

    assert builder(cache, "create-pyproject", plus).returncode == 0
    install = ["pip", "install", "-q", "--no-build-isolation", "-e", "."]
    done = builder(cache, "devshell", plus, "--", *install)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this is done once" not in done.stderr
    use = "import torch, plus; assert plus.add_one(torch.zeros(2)).tolist() == [1, 1]"
    python = ["--", "python", "-W", "ignore", "-c"]
    assert builder(cache, "devshell", plus, *python, use).returncode == 0
    done = builder(cache, "devshell", other, *python, use)
    assert "No module named 'plus'" in done.stderr

    done = builder(cache, "testshell", other, "--", "pytest", "-q", "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    use = "import torch, other; assert other.add_one(torch.zeros(2)).tolist() == [1, 1]"
    variant = "torch-stable-abi210-cpu-x86_64-linux"
    done = builder(cache, "testshell", other, "--variant", variant, *python, use)
    assert done.returncode == 0, done.stderr
    left = {path.name for path in (other / "build" / variant).rglob("*")}
    assert "__pycache__" not in left


def test_no_index_is_an_error_that_says_so(tmp_path: Path, projects: tuple[Path, Path]) -> None:
    nothing = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    done = builder(tmp_path / "cache", "devshell", projects[0], "--", "true", **nothing)
    assert done.returncode == 1
    assert "ERROR: No matching distribution found for " in done.stderr
    assert "Traceback" not in done.stderr
    left = (tmp_path / "cache" / "kernel-builder" / "shells").iterdir()
    assert not [path for path in left if path.suffix != ".lock"]


def test_a_variant_that_nothing_can_build_costs_nothing(
    tmp_path: Path, projects: tuple[Path, Path], copy_kit: Callable[[str], Path]
) -> None:
    done = builder(
        tmp_path / "c", "testshell", projects[0], "--variant", "torch-rocm", "--", "true"
    )
    assert done.returncode == 2
    assert not (tmp_path / "c" / "kernel-builder" / "shells").exists()
    wrong = copy_kit("add_stable")
    (wrong / "build.toml").write_text("[")
    assert builder(tmp_path / "c", "devshell", wrong, "--", "true").returncode == 2
