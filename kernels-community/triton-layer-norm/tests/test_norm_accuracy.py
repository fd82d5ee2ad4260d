"""Forward and backward against the formulas in float64, on random data with random weights."""

# ruff: noqa: PLR0917  (fixtures and parameters)
from __future__ import annotations

from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

# Of the largest value: the result is rounded once, so half a unit in the last place and
# the error of the float32 arithmetic before.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 4.5e-3, torch.float16: 6e-4}
DTYPES = list(TOLERANCE)
HIDDEN = [1, 2, 7, 64, 100, 1000, 1023, 4096, 5120]
EPS = 1e-5


def reference(x, weight, bias, eps, *, is_rms):
    if is_rms:
        return F.rms_norm(x, x.shape[-1:], weight, eps) + (0 if bias is None else bias)
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def function(norms: ModuleType, is_rms: bool):
    return norms.rms_norm_fn if is_rms else norms.layer_norm_fn


def random(*shape: int, dtype: torch.dtype, device: str, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, dtype=torch.float64) * scale + 0.3).to(device, dtype)


def assert_near(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.shape == expected.shape
    error = (found.double() - expected).abs()
    # float16 has no finer steps than 6e-8, whatever the tolerance
    allowed = TOLERANCE[dtype] * expected.abs() + TOLERANCE[dtype] * 0.05 + 6e-8
    if dtype == torch.float32:
        allowed = allowed + TOLERANCE[dtype]
    assert bool((error <= allowed).all()), (error - allowed).max()


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_the_forward_is_the_exact_value_rounded_once(
    norms: ModuleType, device: str, hidden: int, dtype: torch.dtype, is_rms: bool
) -> None:
    torch.manual_seed(hidden)
    x = random(5, 3, hidden, dtype=dtype, device=device, scale=3)
    weight, bias = (random(hidden, dtype=dtype, device=device) for _ in range(2))
    for b in (bias, None):
        y = function(norms, is_rms)(x, weight, b, eps=EPS)
        wide = None if b is None else b.double()
        assert y.dtype == dtype
        assert_near(y, reference(x.double(), weight.double(), wide, EPS, is_rms=is_rms), dtype)


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("residual_in_fp32", [False, True])
def test_a_residual_is_added_before_and_returned(
    norms: ModuleType, device: str, dtype: torch.dtype, is_rms: bool, residual_in_fp32: bool
) -> None:
    torch.manual_seed(1)
    x, residual = (random(6, 200, dtype=dtype, device=device) for _ in range(2))
    weight, bias = (random(200, dtype=dtype, device=device) for _ in range(2))
    norm = function(norms, is_rms)
    options = {"eps": EPS, "residual_in_fp32": residual_in_fp32}
    y, total = norm(x, weight, bias, residual, prenorm=True, **options)
    h = x.double() + residual.double()
    assert total.dtype == (torch.float32 if residual_in_fp32 else dtype)
    assert_near(total, h, total.dtype)
    assert_near(y, reference(h, weight.double(), bias.double(), EPS, is_rms=is_rms), dtype)
    assert torch.equal(norm(x, weight, bias, residual, **options), y)


def test_prenorm_without_a_residual_returns_the_input(norms: ModuleType, device: str) -> None:
    x = random(2, 8, dtype=torch.bfloat16, device=device)
    weight = random(8, dtype=torch.bfloat16, device=device)
    y, total = norms.rms_norm_fn(x, weight, prenorm=True)
    assert torch.equal(total, x)
    assert torch.equal(y, norms.rms_norm_fn(x, weight))
    _, total = norms.rms_norm_fn(x, weight, prenorm=True, residual_in_fp32=True)
    assert torch.equal(total, x.float())


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("has_residual", [False, True])
def test_gradcheck(norms: ModuleType, device: str, is_rms: bool, has_residual: bool) -> None:
    torch.manual_seed(2)
    x, residual = (random(3, 7, dtype=torch.float64, device=device) for _ in range(2))
    weight, bias = (random(7, dtype=torch.float64, device=device) for _ in range(2))
    inputs = [t.requires_grad_() for t in (x, weight, bias, residual)[: 4 if has_residual else 3]]

    def call(x, weight, bias, residual=None):
        norm = function(norms, is_rms)
        return norm(x, weight, bias, residual, prenorm=has_residual, eps=EPS)

    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "hidden"), [(1, 1), (3, 7), (300, 100), (1000, 1023), (17, 4096)])
@pytest.mark.parametrize("has_residual", [False, True])
def test_the_backward_is_that_of_the_formula_in_float64(
    norms: ModuleType,
    device: str,
    rows: int,
    hidden: int,
    dtype: torch.dtype,
    is_rms: bool,
    has_residual: bool,
) -> None:
    torch.manual_seed(rows)
    shapes = [(rows, hidden), (hidden,), (hidden,), (rows, hidden)]
    leaves = [random(*s, dtype=dtype, device=device).requires_grad_() for s in shapes]
    dy, dsum = (random(rows, hidden, dtype=dtype, device=device) for _ in range(2))
    wide = [t.detach().double().requires_grad_() for t in leaves]
    x, weight, bias, residual = leaves
    norm = function(norms, is_rms)
    if has_residual:
        outputs = norm(x, weight, bias, residual, eps=EPS, prenorm=True)
        h = wide[0] + wide[3]
        expected = (reference(h, wide[1], wide[2], EPS, is_rms=is_rms), h)
        gradients = torch.autograd.grad(outputs, leaves, (dy, dsum))
        exact = torch.autograd.grad(expected, wide, (dy.double(), dsum.double()))
    else:
        gradients = torch.autograd.grad(norm(x, weight, bias, eps=EPS), leaves[:3], dy)
        y = reference(wide[0], wide[1], wide[2], EPS, is_rms=is_rms)
        exact = torch.autograd.grad(y, wide[:3], dy.double())
    for found, true, leaf in zip(gradients, exact, leaves, strict=False):
        assert found.dtype == leaf.dtype
        error = (found.double() - true).norm()
        # the saved sum was rounded once, then the gradient was
        assert error <= 2 * TOLERANCE[dtype] * true.norm() + 1e-5, error / true.norm()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_may_have_another_dtype(norms: ModuleType, device: str, dtype: torch.dtype) -> None:
    x = random(4, 96, dtype=dtype, device=device)
    weight = random(96, dtype=torch.float32, device=device)
    y = norms.rms_norm_fn(x, weight, eps=EPS)
    assert y.dtype == dtype
    assert_near(y, reference(x.double(), weight.double(), None, EPS, is_rms=True), dtype)


def test_without_a_weight(norms: ModuleType, device: str) -> None:
    x = random(4, 96, dtype=torch.float32, device=device).requires_grad_()
    y = norms.layer_norm_fn(x, None, eps=EPS)
    assert_near(y, F.layer_norm(x.double(), (96,), None, None, EPS), torch.float32)
    wide = x.detach().double().requires_grad_()
    (exact,) = torch.autograd.grad(F.layer_norm(wide, (96,), None, None, EPS)[:, 0].sum(), wide)
    (found,) = torch.autograd.grad(y[:, 0].sum(), x)
    assert_near(found, exact, torch.float32)
