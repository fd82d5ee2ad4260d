"""Calls of the compiled ops that autograd records, in C++ and in Python: the same to the bit, wherever they run."""

# ruff: noqa: PLR0917  (fixtures and parameters)
from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest
import torch

EPS = 1e-5


@pytest.fixture(autouse=True)
def recorded(norms: ModuleType, way: str) -> None:
    if way not in {"node", "compiled"}:
        pytest.skip("the ways that are tested elsewhere")
    torch.manual_seed(0)


@pytest.fixture
def compiled(norms: ModuleType) -> ModuleType:
    return sys.modules[f"{norms.__name__}._compiled"]


def draw(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") + 0.3).to(dtype).requires_grad_()


def test_the_node_is_there_where_the_variant_has_one_for_this_torch(
    norms: ModuleType, way: str
) -> None:
    major, minor = torch.__version__.split(".")[:2]
    parts = [*Path(norms.__file__).parent.glob(f"*.torch{major}{minor}.so")]
    x, weight = draw(4, 64), draw(64)
    node = norms.rms_norm_fn(x, weight).grad_fn
    assert isinstance(node, torch.autograd.function.BackwardCFunction) == (way == "compiled")
    if way == "node":
        assert node.name() == "NormBackward"
        assert len(parts) == 1


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("hidden", [40, 1000, 4096])
def test_both_languages_give_the_same_bits(
    norms: ModuleType, compiled: ModuleType, hidden: int, dtype: torch.dtype, is_rms: bool, way: str
) -> None:
    if way != "node":
        pytest.skip("compared once")
    ways = (compiled.record_norm, compiled.record_add_norm), compiled.in_python
    for has_weight, has_bias, wide in product((True, False), (True, False), (None, False, True)):
        of_parameters = torch.float32 if wide else dtype
        x, residual = draw(2, 9, hidden, dtype=dtype), draw(2, 9, hidden, dtype=of_parameters)
        weight = draw(hidden, dtype=of_parameters) if has_weight else None
        bias = draw(hidden, dtype=of_parameters) if has_bias else None
        inputs = (x, weight, bias) if wide is None else (x, residual, weight, bias)
        leaves = [t for t in inputs if t is not None]
        found = []
        for norm, add_norm in ways:
            if wide is None:
                outputs = (norm(*inputs, EPS, is_rms),)
            else:
                outputs = add_norm(*inputs, EPS, is_rms, wide)
            torch.manual_seed(1)
            dys = [torch.randn_like(y) for y in outputs]
            found.append((*outputs, *torch.autograd.grad(outputs, leaves, dys)))
        assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(*found, strict=True))


def train(norms: ModuleType, *leaves: torch.Tensor) -> Callable[[], tuple[torch.Tensor, ...]]:
    x, weight = leaves

    def step() -> tuple[torch.Tensor, ...]:
        y, total = norms.layer_norm_fn(x, weight, None, x, eps=EPS, prenorm=True)
        y = norms.rms_norm_fn(y, weight, eps=EPS)
        return torch.autograd.grad((y, total), leaves, (torch.ones_like(y), torch.ones_like(y)))

    return step


def test_a_graph_of_forward_and_backward_is_captured(norms: ModuleType) -> None:
    x, weight = draw(64, 4096), draw(4096)
    step = train(norms, x, weight)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        x.copy_(draw(64, 4096))
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(found, step(), strict=True))


def test_a_backward_runs_on_the_stream_of_its_forward(norms: ModuleType) -> None:
    step = train(norms, draw(2048, 4096), draw(4096))
    expected = step()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        found = step()
    torch.cuda.current_stream().wait_stream(side)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_threads_train_at_once(norms: ModuleType) -> None:
    steps = [train(norms, draw(32, 1024), draw(1024)) for _ in range(4)]
    expected = [step() for step in steps]
    same: list[bool] = []

    def repeat(number: int) -> None:
        for _ in range(20):
            same.extend(map(torch.equal, steps[number](), expected[number]))

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 160


def test_tensors_of_another_device_than_the_current_one(norms: ModuleType) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    x, weight = (t.detach().to("cuda:1").requires_grad_() for t in (draw(64, 1024), draw(1024)))
    found = train(norms, x, weight)()
    with torch.cuda.device(1):
        expected = train(norms, x, weight)()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_checkpointed_block(norms: ModuleType) -> None:
    from torch.utils.checkpoint import checkpoint

    x, weight = draw(16, 1024), draw(1024)

    def block(x: torch.Tensor) -> torch.Tensor:
        y, total = norms.rms_norm_fn(x, weight, None, x, eps=EPS, prenorm=True)
        return norms.rms_norm_fn(y + total, weight, eps=EPS)

    expected = torch.autograd.grad(block(x).sum(), (x, weight))
    found = torch.autograd.grad(checkpoint(block, x, use_reentrant=False).sum(), (x, weight))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
