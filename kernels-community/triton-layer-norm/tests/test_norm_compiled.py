"""The compiled ops alone, where there are some: every form of their kernels, and what they refuse."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

EPS = 1e-5
# Of the largest value: half a unit in the last place, and the float32 arithmetic before.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 4.5e-3, torch.float16: 6e-4}
# One for each form: lanes of a warp, warps, two packs, four, none; whole packs and not.
HIDDEN = [1, 7, 8, 24, 128, 250, 1000, 1024, 4096, 5120, 8192, 16384, 16392, 20001]


@pytest.fixture(autouse=True)
def compiled(norms: ModuleType, way: str) -> None:
    if way != "compiled":
        pytest.skip("the ways that are tested elsewhere")
    torch.manual_seed(0)


def draw(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return (torch.randn(shape, device="cuda") + 0.3).to(dtype)


def assert_near(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.shape == expected.shape
    error = (found.double() - expected).norm()
    assert error <= TOLERANCE[dtype] * expected.norm() + 1e-7, error / expected.norm()


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("wide", [False, True], ids=["", "float weights"])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_every_form(
    norms: ModuleType, hidden: int, dtype: torch.dtype, wide: bool, is_rms: bool
) -> None:
    of_parameters = torch.float32 if wide else dtype
    x, residual, dy, dsum = (draw(9, hidden, dtype=dtype) for _ in range(4))
    weight, bias = (draw(hidden, dtype=of_parameters) for _ in range(2))
    ops, exact = norms.ops, norms.reference
    tensors = [t.double() for t in (x, weight, bias)]
    y = ops.cuda_norm(x, weight, bias, EPS, is_rms)
    assert_near(y, exact.norm(*tensors, EPS, is_rms=is_rms), dtype)
    y, total = ops.cuda_add_norm(x, residual, weight, bias, EPS, is_rms, wide)
    assert total.dtype == (torch.float32 if wide else dtype)
    expected = exact.add_norm(
        *(tensors[0], residual.double(), *tensors[1:], EPS), is_rms=is_rms, sum_dtype=torch.float64
    )
    assert_near(y, expected[0], dtype)
    assert_near(total, expected[1], total.dtype)
    found = ops.cuda_norm_backward(x, weight, dy, dsum, EPS, is_rms, True, True)
    expected = exact.norm_backward(
        *(tensors[0], tensors[1], dy.double(), dsum.double(), EPS), is_rms=is_rms
    )
    for a, b, kind in zip(found, expected, (dtype, of_parameters, of_parameters), strict=True):
        assert a.dtype == kind
        assert_near(a, b, kind)


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("hidden", [2048, 4096, 8192])
@pytest.mark.parametrize("rows", [1, 1000, 3000])
def test_rows_of_common_lengths_which_have_kernels_of_their_own(
    norms: ModuleType, rows: int, hidden: int, dtype: torch.dtype, is_rms: bool
) -> None:
    x, weight = draw(rows, hidden, dtype=dtype), draw(hidden, dtype=dtype)
    bias = None if is_rms else draw(hidden, dtype=dtype)
    wide = [None if t is None else t.double() for t in (x, weight, bias)]
    expected = norms.reference.norm(*wide, EPS, is_rms=is_rms)
    for rows_apart in (x, torch.cat((x, x), 1)[:, :hidden]):
        y = norms.ops.cuda_norm(rows_apart, weight, bias, EPS, is_rms)
        assert_near(y, expected, dtype)


def test_a_row_that_lies_far_from_zero_or_begins_far_from_the_rest(norms: ModuleType) -> None:
    h = draw(64, 4096, dtype=torch.float32)
    h[:, 0] += 3e4
    h[32:] += 1e3
    dy, weight = torch.randn_like(h), draw(4096, dtype=torch.float32)
    found = norms.ops.cuda_norm_backward(h, weight, dy, None, EPS, False, True, True)
    exact = norms.reference.norm_backward(
        *(h.double(), weight.double(), dy.double(), None, EPS), is_rms=False
    )
    for a, b in zip(found, exact, strict=True):
        assert ((a.double() - b).norm() / b.norm()).item() < 1e-4


@pytest.mark.parametrize("rows", [1, 3, 1000, 5000])
@pytest.mark.parametrize("hidden", [64, 1000, 4096, 8192])
def test_sums_over_many_rows_do_not_change_from_run_to_run(
    norms: ModuleType, rows: int, hidden: int
) -> None:
    x, dy, weight = draw(rows, hidden), draw(rows, hidden), draw(hidden)
    arguments = (x, weight, dy, None, EPS, False, True, True)
    first = norms.ops.cuda_norm_backward(*arguments)
    exact = norms.reference.norm_backward(
        *(x.double(), weight.double(), dy.double(), None, EPS), is_rms=False
    )
    for a, b in zip(first, exact, strict=True):
        assert_near(a, b, torch.float16)
    for again in (norms.ops.cuda_norm_backward(*arguments) for _ in range(3)):
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    none = norms.ops.cuda_norm_backward(*arguments[:-2], False, False)
    assert torch.equal(none[0], first[0])
    assert none[1:] == (None, None)


def test_opcheck(norms: ModuleType) -> None:
    check, ops = torch.library.opcheck, norms.ops
    x, residual, dy, weight, bias = draw(4, 40), draw(4, 40), draw(4, 40), draw(40), draw(40)
    for is_rms in (True, False):
        check(ops.cuda_norm.default, (x, weight, bias, EPS, is_rms))
        check(ops.cuda_norm.default, (x[:, 1:], None, None, EPS, is_rms))
        check(ops.cuda_add_norm.default, (x, residual, weight.float(), None, EPS, is_rms, True))
        arguments = (x, weight, dy, residual, EPS, is_rms)
        check(ops.cuda_norm_backward.default, (*arguments, True, True))
        check(ops.cuda_norm_backward.default, (*arguments, False, False))


def test_what_the_ops_refuse(norms: ModuleType) -> None:
    x, weight = draw(2, 8), draw(8)
    refused = {
        "dtype must be float32, bfloat16 or float16, not Double": (x.double(), None, None),
        "weight must have one element for each of a row's 8": (x, weight[:4], None),
        "weight must be on the device of x": (x, weight.cpu(), None),
        "bias must have the dtype of x or float32, not BFloat16": (x, None, weight.bfloat16()),
        "weight and bias differ in dtype": (x, weight, weight.float()),
        "x must have a last dimension": (x[0, 0], None, None),
    }
    for message, tensors in refused.items():
        with pytest.raises(RuntimeError, match=message):
            norms.ops.cuda_norm(*tensors, EPS, True)
    with pytest.raises(RuntimeError, match="residual must have the shape of x"):
        norms.ops.cuda_add_norm(x, weight, weight, None, EPS, True, False)
    with pytest.raises(RuntimeError, match="dy must have the dtype of h"):
        norms.ops.cuda_norm_backward(x, weight, x.float(), None, EPS, True, True, False)


def test_a_model_under_autocast_keeps_its_float_weights(norms: ModuleType) -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(64) + 0.5)
            self.variance_epsilon = EPS

        forward = norms.layers.LlamaRMSNorm.forward

    model = nn.Sequential(nn.Linear(64, 64), Norm()).cuda()
    x = torch.randn(32, 64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        h = model[0](x)
        y = model[1](h)
        y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    exact = norms.reference.norm(h.double(), model[1].weight.double(), None, EPS, is_rms=True)
    assert_near(y.detach(), exact.detach(), torch.bfloat16)
    assert model[0].weight.grad is not None
    assert model[1].weight.grad.dtype == torch.float32


def test_a_sum_in_float32_has_gradients(norms: ModuleType) -> None:
    shapes = [(5, 96), (96,), (5, 96)]
    x, weight, residual = (draw(*shape).requires_grad_() for shape in shapes)
    outputs = norms.rms_norm_fn(
        x, weight, None, residual, eps=EPS, prenorm=True, residual_in_fp32=True
    )
    dy, dsum = draw(5, 96), draw(5, 96, dtype=torch.float32)
    found = torch.autograd.grad(outputs, (x, weight, residual), (dy, dsum))
    wide = [t.detach().double().requires_grad_() for t in (x, weight, residual)]
    exact = norms.reference.add_norm(
        *(wide[0], wide[2], wide[1], None, EPS), is_rms=True, sum_dtype=torch.float64
    )
    for a, b in zip(
        found, torch.autograd.grad(exact, wide, (dy.double(), dsum.double())), strict=True
    ):
        assert a.dtype == torch.float16
        assert_near(a, b, torch.float16)


def test_another_stream_and_inference_mode(norms: ModuleType) -> None:
    x, weight = draw(64, 4096), draw(4096)
    expected = norms.rms_norm_fn(x, weight, eps=EPS)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.inference_mode():
        y = norms.rms_norm_fn(x, weight, eps=EPS)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(y, expected)


def test_a_captured_graph_computes_the_norm_of_what_is_there(norms: ModuleType) -> None:
    x, weight = draw(64, 4096), draw(4096)
    norms.rms_norm_fn(x, weight, eps=EPS)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = norms.rms_norm_fn(norms.rms_norm_fn(x, weight, eps=EPS), weight, eps=EPS)
    x.copy_(draw(64, 4096))
    graph.replay()
    once = norms.rms_norm_fn(x, weight, eps=EPS)
    assert torch.equal(y, norms.rms_norm_fn(once, weight, eps=EPS))


def test_vmap_maps(norms: ModuleType) -> None:
    x, weight = draw(3, 5, 64, dtype=torch.float32), draw(64, dtype=torch.float32)
    mapped = torch.vmap(lambda row: norms.rms_norm_fn(row, weight, eps=EPS))(x)
    torch.testing.assert_close(mapped, norms.rms_norm_fn(x, weight, eps=EPS))
