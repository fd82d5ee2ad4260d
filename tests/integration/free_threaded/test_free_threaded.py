"""The loader in an interpreter without a global lock: its own tests, and many threads at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy_variant import write_toy_metadata

from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId

ROOT = Path(__file__).parents[3]
THREADS = Path(__file__).parent / "threads.py"
KERNELS, RUNNERS = 6, 16
# The source appends a line each time that it runs; ``late`` imports when it is called.
INIT = """
import os
NAME = "{name}"
with open(os.environ["RUN_LOG"], "a") as log:
    log.write(NAME + "\\n")

def late():
    import {name}.part
    from . import part
    assert {name}.part is part
    return part.NAME
"""
# They ask for torch, or for the toolchain that would build.
NEEDS_TORCH = (
    "tests/unit/loader/test_system.py::test_torch_is_read_as_text_and_says_what_torch_says",
    "tests/unit/loader/test_from_source.py::test_the_key_of_a_build_names_everything_that_went_in",
)


def publish(root, name, variant="torch-cpu"):
    project = root.parent / f"project-{name}"
    folder = project / "build" / variant
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(INIT.format(name=name))
    (folder / "part.py").write_text(f"NAME = {name!r}\n")
    write_toy_metadata(folder, name)
    files = {p.relative_to(project).as_posix(): p for p in project.rglob("*") if p.is_file()}
    publishing.publish(DirectoryHub(root), RepoId("acme", name), files, branch="v1", parent=None)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "hub"
    root.mkdir()
    return root


@pytest.fixture(params=["folder", "http"])
def hub(request, serve, root):
    """The URL of a hub with the kernels."""
    for number in range(KERNELS):
        publish(root, f"k{number}")
    return f"file://{root}" if request.param == "folder" else serve(root, trusted=("acme",)).url


def environment(tmp_path, hub):
    keep = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
    (tmp_path / "runs").touch()
    return keep | {
        "HOME": str(tmp_path),
        "KERNELS_CACHE": str(tmp_path / "cache"),
        "KERNELS_HUB": hub,
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RUN_LOG": str(tmp_path / "runs"),
        "NO_PROXY": "*",
    }


def check_threads(python, tmp_path, hub, *, gil):
    done = subprocess.run(
        [python, THREADS, str(KERNELS), str(RUNNERS)],
        env=environment(tmp_path, hub),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said == {
        "wrong": [],
        "alive": 0,
        "modules": {f"k{number}": 1 for number in range(KERNELS)},
        "loaded": KERNELS,
        "gil": gil,
    }
    runs = (tmp_path / "runs").read_text().split()
    assert sorted(runs) == [f"k{number}" for number in range(KERNELS)], "each ran once"


@pytest.mark.parametrize("free", [True, False], ids=["free", "gil"])
def test_threads_load_the_same_and_different_kernels_at_once(request, tmp_path, hub, free):
    python = request.getfixturevalue("free_python") if free else sys.executable
    check_threads(python, tmp_path, hub, gil=not free)
    # Once more, in a process with a warm cache.
    (tmp_path / "runs").write_text("")
    check_threads(python, tmp_path, hub, gil=not free)


def test_a_variant_with_a_library_is_refused_with_the_reason(free_python, tmp_path, root):
    """kernels 312: every kernel crashed a free-threaded Python before 3.15 on import."""
    publish(root, "k0", variant="torch-stable-abi29-cpu-x86_64-linux")
    code = "import kernels; kernels.get_kernel('acme/k0')"
    done = subprocess.run(
        [free_python, "-c", code],
        env=environment(tmp_path, f"file://{root}"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "NoVariantError" in done.stderr
    assert "free-threaded" in done.stderr
    assert (tmp_path / "runs").read_text() == ""


def test_the_tests_of_the_loader_pass(free_python, tmp_path):
    omitted = [word for test in NEEDS_TORCH for word in ("--deselect", test)]
    done = subprocess.run(
        [
            free_python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/unit/loader",
            *omitted,
        ],
        cwd=ROOT,
        env=environment(tmp_path, f"file://{tmp_path}"),
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "[100%]" in done.stdout
