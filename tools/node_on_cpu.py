"""A node of autograd in C++, for tests: compiled for the torch that is here, over ops that a CPU has."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
import torch
from lacking import require_commands
from torch.autograd import forward_ad

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


def below_autograd(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make code for an op that sees values alone, as code in C++ does: no tangent, and nothing is recorded."""

    def call(*arguments: Any, **options: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return function(*arguments, **options)

    return call


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


@contextmanager
def compiled_backward(dynamic: bool = False) -> Iterator[None]:
    """Let torch compile every backward within, as one graph of which no part is changed."""
    torch._dynamo.reset()
    compiler = torch.compile(backend="eager", dynamic=dynamic)
    with torch._dynamo.compiled_autograd._enable(compiler, dynamic=dynamic):
        yield


def check_compiled(record: Callable[[], torch.Tensor], leaves: list[torch.Tensor]) -> None:
    """See that gradients of a backward that is compiled are those of the engine, where it is."""
    found = torch.autograd.grad(record().square().sum(), leaves)
    with torch._dynamo.compiled_autograd._disable():
        expected = torch.autograd.grad(record().square().sum(), leaves)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


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


def check_tangent_of_gradient(outputs: tuple[torch.Tensor, ...], x: torch.Tensor) -> None:
    """See that a gradient has the tangent that follows from one of what comes in: it is linear in that."""
    for at in range(len(outputs)):
        values, slopes = (torch.randn_like(outputs[at]) for _ in range(2))
        dys = [torch.zeros_like(y) for y in outputs]
        dys[at] = slopes
        (right,) = torch.autograd.grad(outputs, x, dys, retain_graph=True)
        with forward_ad.dual_level():
            dys[at] = forward_ad.make_dual(values, slopes)
            (found,) = torch.autograd.grad(outputs, x, dys, retain_graph=True)
            tangent = forward_ad.unpack_dual(found).tangent
        assert tangent is not None
        torch.testing.assert_close(tangent, right)


def check_kept_elsewhere(record: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> None:
    """See that what a node keeps may lie anywhere until it is needed, and that what goes wrong there is raised."""
    (expected,) = torch.autograd.grad(record(x * 1).sum(), x)
    for elsewhere in (
        torch.autograd.graph.save_on_cpu(),
        torch.autograd.graph.saved_tensors_hooks(
            lambda t: pickle.dumps(t.detach()), lambda packed: pickle.loads(packed)
        ),
        torch.autograd.graph.allow_mutation_on_saved_tensors(),
    ):
        with elsewhere as mutable:
            h = x * 1
            y = record(h)
            if mutable is not None:
                h.mul_(0)
            (found,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(found, expected)

    def fail(_: object) -> NoReturn:
        raise OSError("no room")

    lost = pytest.raises(OSError, match="no room")
    with torch.autograd.graph.saved_tensors_hooks(fail, lambda t: t), lost:
        record(x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, fail):
        y = record(x * 1)
    with lost:
        y.sum().backward()


def check_many_gradients(
    outputs: tuple[torch.Tensor, ...], inputs: tuple[torch.Tensor, ...]
) -> None:
    """See that many gradients at once, by either way of torch, are those one by one."""
    many = tuple(torch.randn(5, *y.shape, dtype=y.dtype) for y in outputs)

    def differentiate(*dys: torch.Tensor, **options: bool) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(outputs, inputs, dys, retain_graph=True, **options)

    by_grad = differentiate(*many, is_grads_batched=True)
    by_vmap = torch.vmap(differentiate)(*many)
    for at in range(5):
        one = differentiate(*(each[at] for each in many))
        for found in (by_grad, by_vmap):
            torch.testing.assert_close(tuple(each[at] for each in found), one)


def run_in_threads(target: Callable[[], None]) -> None:
    """Run a function in four threads, and wait for all."""
    threads = [threading.Thread(target=target) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
