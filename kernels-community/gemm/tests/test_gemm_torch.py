"""The ops as torch sees them: schema, fake implementations, torch.compile, gradients, threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
import torch

# torch's test of the schema multiplies the arguments, which FP8 tensors do not allow.
CHECKS = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


@pytest.fixture(autouse=True)
def forget_compiled_graphs() -> None:
    torch._dynamo.reset()


def test_the_public_names(gemm: ModuleType) -> None:
    assert set(gemm.__all__) == {"gemm", "gemm_nt"}
    assert set(gemm.reference.__all__) == {"gemm", "gemm_nt"}


@pytest.mark.parametrize("nt", [False, True])
def test_opcheck(gemm: ModuleType, draw: Callable, nt: bool) -> None:
    operands = draw(40, 72, 256)
    arguments = operands.native if nt else operands.turned
    c = torch.empty(40, 72, dtype=torch.bfloat16, device=operands.a.device)
    torch.library.opcheck(gemm.ops.gemm.default, (*arguments, nt), test_utils=CHECKS)
    torch.library.opcheck(gemm.ops.gemm_out.default, (c, *arguments, nt, -1), test_utils=CHECKS)


def test_only_the_result_is_written(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(40, 72, 256)
    before = [each.clone() for each in operands.native]
    gemm.gemm_nt(*operands.native)
    for each, same in zip(operands.native, before, strict=True):
        assert torch.equal(each.float(), same.float())


def test_functions_compile_into_one_graph(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(40, 72, 256)
    c = torch.empty(40, 72, dtype=torch.bfloat16, device=operands.a.device)

    def step(a, b, a_scale, b_scale, c):
        fresh = gemm.gemm(a, b, a_scale * 2, b_scale)
        written = gemm.gemm_nt(a.t(), b.t(), a_scale.t(), b_scale.t(), c)
        return fresh + 1, written - 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    expected = step(*operands.turned, torch.empty_like(c))
    for result, same in zip(compiled(*operands.turned, c), expected, strict=True):
        assert torch.equal(result, same)


def test_a_mistake_under_compile_is_a_mistake(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(40, 72, 256)
    compiled = torch.compile(gemm.gemm, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"pass a\.t\(\)"):
        compiled(operands.a, *operands.turned[1:])


def test_the_fake_of_an_unknown_number_of_rows(gemm: ModuleType, draw: Callable) -> None:
    compiled = torch.compile(gemm.gemm_nt, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 40, 77):
        operands = draw(rows, 72, 256)
        assert torch.equal(compiled(*operands.native), gemm.gemm_nt(*operands.native))


def test_there_is_no_backward(gemm: ModuleType, draw: Callable) -> None:
    a, b, a_scale, b_scale = draw(40, 72, 256).native
    with pytest.raises(RuntimeError, match=r"gemm_nt has no backward.*detach"):
        gemm.gemm_nt(a, b, a_scale.requires_grad_(), b_scale)
    with torch.no_grad():
        c = gemm.gemm_nt(a, b, a_scale, b_scale)
    assert not c.requires_grad


def test_threads_get_the_same_result(gemm: ModuleType, draw: Callable) -> None:
    drawn = [draw(33 + i, 72, 256, seed=i) for i in range(4)]
    expected = [gemm.gemm_nt(*each.native) for each in drawn]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            results = pool.map(lambda each: gemm.gemm_nt(*each.native), drawn)
            assert all(map(torch.equal, results, expected))
