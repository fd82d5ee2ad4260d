"""Shapes, strides and values that a kernel easily gets wrong, and the errors for what is refused."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
import torch.nn.functional as F

EPS = 1e-6


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x.double(), x.shape[-1:], weight.double(), EPS).to(x.dtype)


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (0,), (3, 0)])
def test_empty(norms: ModuleType, device: str, shape: tuple[int, ...]) -> None:
    x = torch.empty(shape, device=device, requires_grad=True)
    weight = torch.ones(shape[-1], device=device, requires_grad=True)
    for norm in (norms.rms_norm_fn, norms.layer_norm_fn):
        y = norm(x, weight, residual=torch.empty(shape, device=device))
        assert y.shape == shape
        y = norm(x, weight)
        assert y.shape == shape
        y.sum().backward()
        assert x.grad.shape == shape
        assert torch.equal(weight.grad, torch.zeros_like(weight))


@pytest.mark.parametrize("shape", [(8,), (1, 8), (1, 1, 1, 8)])
def test_one_row(norms: ModuleType, device: str, shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape, device=device), torch.randn(8, device=device)
    torch.testing.assert_close(norms.rms_norm_fn(x, weight, eps=EPS), rms(x, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_rows_and_columns_at_any_distance(
    norms: ModuleType, device: str, dtype: torch.dtype
) -> None:
    whole = torch.randn(6, 5, 130, device=device).to(dtype)
    weight = torch.randn(260, device=device).to(dtype)
    views = {
        "rows apart": whole[:, 1:3, :64],
        "not aligned": whole[:, :, 3:100],
        "columns apart": whole[:, :, ::2],
        "transposed": whole.transpose(0, 2),
        "expanded": whole[:1, :, :].expand(4, 5, 130),
        "reversed order of rows": whole.transpose(0, 1),
    }
    for name, x in views.items():
        for w in (weight[: x.shape[-1]], weight[::2][: x.shape[-1]], weight[1 : x.shape[-1] + 1]):
            y = norms.rms_norm_fn(x, w, eps=EPS)
            torch.testing.assert_close(y, rms(x, w), msg=name)
            # the same kind of call again, now that it was seen once
            dense = x.contiguous()
            torch.testing.assert_close(norms.rms_norm_fn(dense, w, eps=EPS), rms(x, w), msg=name)
            z, total = norms.rms_norm_fn(x, w, None, x, eps=EPS, prenorm=True)
            torch.testing.assert_close(total, x + x, msg=name)
            torch.testing.assert_close(z, rms(x.double() * 2, w).to(dtype), msg=name)


def test_gradients_of_any_strides(norms: ModuleType, device: str) -> None:
    torch.manual_seed(0)
    whole = torch.randn(6, 40, device=device, requires_grad=True)
    weight = torch.randn(20, device=device)
    for dy in (torch.randn(20, 6, device=device).T, torch.ones((), device=device).expand(6, 20)):
        y = norms.rms_norm_fn(whole[:, ::2], weight, eps=EPS)
        (found,) = torch.autograd.grad(y, whole, dy)
        wide = whole.detach().double().requires_grad_()
        exact = F.rms_norm(wide[:, ::2], (20,), weight.double(), EPS)
        (expected,) = torch.autograd.grad(exact, wide, dy.double())
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hidden", [16384, 20000, 32768, 40000])
def test_long_rows(norms: ModuleType, device: str, hidden: int) -> None:
    torch.manual_seed(hidden)
    x = torch.randn(3, hidden, device=device, requires_grad=True)
    weight = torch.randn(hidden, device=device, requires_grad=True)
    dy = torch.randn(3, hidden, device=device)
    found = torch.autograd.grad(norms.layer_norm_fn(x, weight, eps=EPS), (x, weight), dy)
    wide = [t.detach().double().requires_grad_() for t in (x, weight)]
    y = F.layer_norm(wide[0], (hidden,), wide[1], None, EPS)
    for a, b in zip(found, torch.autograd.grad(y, wide, dy.double()), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_stays_in_its_row(norms: ModuleType, device: str, value: float) -> None:
    x = torch.randn(4, 100, device=device)
    x[1, 3] = value
    weight = torch.randn(100, device=device)
    for norm, of_torch in ((norms.rms_norm_fn, F.rms_norm), (norms.layer_norm_fn, F.layer_norm)):
        expected = of_torch(x, (100,), weight, eps=EPS)
        found = norm(x, weight, eps=EPS)
        assert not found[1].isfinite().all()
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_rows_of_zeros_and_of_one_value(norms: ModuleType, device: str) -> None:
    x = torch.zeros(3, 100, device=device, dtype=torch.float16)
    weight = torch.randn(100, device=device, dtype=torch.float16)
    assert torch.equal(norms.rms_norm_fn(x, weight), x)
    assert torch.equal(norms.layer_norm_fn(x, weight), x)
    assert norms.layer_norm_fn(x + 7, weight).abs().max() < 1e-2


def test_squares_that_float16_cannot_hold(norms: ModuleType, device: str) -> None:
    x = torch.full((2, 64), 60000.0, device=device, dtype=torch.float16)
    x[:, ::2] *= -1
    weight = torch.ones(64, device=device, dtype=torch.float16)
    torch.testing.assert_close(norms.rms_norm_fn(x, weight), x / 60000)


def test_more_elements_than_an_int_counts(norms: ModuleType) -> None:
    if not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 40 << 30:
        pytest.skip("needs a GPU with 40 GB free")
    rows, hidden = (1 << 19) + 3, 4100
    x = torch.randn(rows, hidden, device="cuda", dtype=torch.float16)
    weight = torch.randn(hidden, device="cuda", dtype=torch.float16)
    y, total = norms.rms_norm_fn(x, weight, None, x, eps=EPS, prenorm=True)
    for part in (slice(0, 4), slice(rows // 2, rows // 2 + 4), slice(rows - 4, rows)):
        torch.testing.assert_close(y[part], rms(x[part].double() * 2, weight).half())
        torch.testing.assert_close(total[part], x[part] * 2)
    far = x[:: rows - 1]
    torch.testing.assert_close(norms.rms_norm_fn(far, weight, eps=EPS), rms(far, weight))


def test_refused(norms: ModuleType, device: str) -> None:
    x, weight = torch.randn(2, 8, device=device), torch.randn(8, device=device)
    norm = norms.rms_norm_fn
    with pytest.raises(ValueError, match=r"weight must have shape \(8,\); found \(4,\)"):
        norm(x, weight[:4])
    with pytest.raises(ValueError, match=r"bias must have shape \(8,\); found \(2, 8\)"):
        norm(x, weight, x)
    with pytest.raises(ValueError, match=r"residual must have shape \(2, 8\); found \(8,\)"):
        norm(x, weight, None, weight)
    with pytest.raises(ValueError, match=r"floating dtype; found shape \(2, 8\) and torch.int32"):
        norm(x.int(), weight)
    with pytest.raises(ValueError, match=r"must have a last dimension.*found shape \(\)"):
        norm(x[0, 0], weight)
    with pytest.raises(ValueError, match=r"weight must be on the device of x"):
        norm(x, weight.to("meta"))
    with pytest.raises(ValueError, match=r"rms_norm_fn: not supported: dropout_p=0.1"):
        norm(x, weight, dropout_p=0.1)
    with pytest.raises(ValueError, match=r"layer_norm_fn: not supported: x1="):
        norms.layer_norm_fn(x, weight, x1=3)
    torch.testing.assert_close(norm(x, weight, x1=None, dropout_p=0.0), norm(x, weight))
