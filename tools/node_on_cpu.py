"""A node of autograd in C++, for tests: compiled for the torch that is here, over ops that a CPU has."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from lacking import require_commands

from kernel_builder.own_headers import read_own_headers

_OPS = """
import ctypes
import torch

ops = torch.ops.ID

def add_op_namespace_prefix(name):
    return "ID::" + name

def load_per_torch():
    ctypes.CDLL("LIBRARY")
    return True
"""


def compile_node(text: str, folder: Path, op_id: str) -> Path:
    """Compile a node's source, with no warning, and return the library.

    Args:
        text: the source.
        folder: an empty directory for it.
        op_id: the namespace of the ops that it gives code to.
    """
    compiler = os.environ.get("CXX", "g++")
    require_commands(compiler)
    from torch.utils.cpp_extension import include_paths, library_paths

    for name, content in read_own_headers().items():
        place = folder / "gen" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (folder / "node.cpp").write_text(text, encoding="utf-8")
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += ["-Wall", "-Wextra", "-Werror", f"-DTORCH_EXTENSION_NAME={op_id}"]
    command += [f"-I{folder / 'gen'}"]
    command += [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
    command += [str(folder / "node.cpp"), "-o", str(folder / "node.so")]
    command += [f"-L{path}" for path in library_paths()] + ["-ltorch_cpu", "-lc10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder / "node.so"


def write_ops(package: Path, library: Path, op_id: str) -> None:
    """Give a kernel's Python the module that a build would: ops by their namespace, and the node."""
    (package / "_ops.py").write_text(_OPS.replace("LIBRARY", str(library)).replace("ID", op_id))


def load_module(name: str, place: Path) -> ModuleType:
    """Run a file as the module of a name."""
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def draw(*shape: int, dtype: torch.dtype = torch.float64, grad: bool = True) -> torch.Tensor:
    """Draw a leaf from a normal distribution, the same numbers in any dtype."""
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)


def differentiate_from_threads(y: torch.Tensor, x: torch.Tensor) -> None:
    """Take the gradient of a graph from four threads at once, and see that each finds what one alone does."""
    (expected,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    found: list[bool] = []

    def differentiate() -> None:
        for _ in range(50):
            (dx,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
            found.append(torch.equal(dx, expected))

    run_in_threads(differentiate)
    assert found == [True] * 200


def release_from_threads(record: Callable[[], torch.Tensor], x: torch.Tensor) -> None:
    """Take gradients, of which each frees the graph, from four threads: each is right or refused in torch's words."""
    (expected,) = torch.autograd.grad(record().sum(), x)
    for _ in range(50):
        y, found = record(), []
        start = threading.Barrier(4)

        def differentiate(y=y, found=found, start=start) -> None:
            start.wait()
            try:
                found.append(torch.equal(torch.autograd.grad(y.sum(), x)[0], expected))
            except RuntimeError as err:
                found.append("a second time" in str(err))

        run_in_threads(differentiate)
        assert found == [True] * 4


def run_in_threads(target: Callable[[], None]) -> None:
    """Run a function in four threads, and wait for all."""
    threads = [threading.Thread(target=target) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
