"""GNU-unique variables leak from one kernel to another for real, and the loader says so."""

from __future__ import annotations

import subprocess

import pytest
from lacking import require_commands

from kernel_spec.names import RepoId

SOURCE = """
inline int &counter() { static int value; return value; }
extern "C" int count_%s() { return ++counter(); }
"""
INIT = """
import ctypes, pathlib
count = ctypes.CDLL(str(pathlib.Path(__file__).parent / "tiny.so")).count_%s
"""
LOAD = """
import kernels
one, two = kernels.get_kernel("acme/one"), kernels.get_kernel("acme/two")
print(one.count(), one.count(), two.count())
"""


@pytest.fixture
def build(tmp_path):
    require_commands("g++")

    def compile_library(name, *flags):
        source, library = tmp_path / f"{name}.cpp", tmp_path / f"{name}.so"
        source.write_text(SOURCE % name)
        command = ["g++", "-shared", "-fPIC", *flags, str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        return library.read_bytes()

    return compile_library


@pytest.fixture
def publish_two(build, republish, root):
    def publish(*flags):
        for name in ("one", "two"):
            files = {"__init__.py": INIT % name, "tiny.so": build(name, *flags)}
            republish(root, files, repo=RepoId("acme", name))

    return publish


@pytest.mark.parametrize(
    ("flags", "counts", "warned"), [([], "1 2 3", True), (["-fno-gnu-unique"], "1 2 1", False)]
)
def test_state_leaks_by_unique_names_alone(machine, publish_two, flags, counts, warned):
    publish_two(*flags)
    process = machine.start(LOAD)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.strip() == counts
    assert ("counter::value" in err and "-fno-gnu-unique" in err) is warned, err
