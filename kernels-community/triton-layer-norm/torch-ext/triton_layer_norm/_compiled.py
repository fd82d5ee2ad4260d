"""The compiled ops, where this variant has them: what they take, and their recorded calls.

They check, allocate and launch in C++, in one call from Python. Where autograd records, the forward
keeps its inputs alone, since the backward reads the rows anyway and normalises them again.
"""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ._checks import check_norm
from ._launch import HAS_TRITON, LAUNCHES_DIRECTLY
from ._ops import add_op_namespace_prefix, ops

__all__ = [
    "add_norm",
    "fits",
    "is_better_in_triton",
    "is_here",
    "norm",
    "norm_backward",
    "record_add_norm",
    "record_norm",
]

is_here: bool = hasattr(ops, "cuda_norm")

# The longest rows that are read once, by the dtype of x: forward, and with a backward to come.
_LONGEST = {
    torch.float32: (8192, 4096),
    torch.bfloat16: (16384, 8192),
    torch.float16: (16384, 8192),
}
_PACK = 8  # rows of a multiple of it are read in whole packs
# Where the compiled forward is the faster one: calls of so many elements, in rows of at most so many.
_LONG, _LONG_ROWS = 1 << 25, 4096


def _find(name: str) -> Callable[..., Any]:
    """Return what calls an op, past the Python that stands before its binding."""
    overload = getattr(ops, name).default
    return getattr(overload, "_op", overload)


if is_here:
    norm = _find("cuda_norm")
    add_norm = _find("cuda_add_norm")
    norm_backward = _find("cuda_norm_backward")


def fits(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    is_recorded: bool,
) -> bool:
    """Whether the compiled ops take tensors of these dtypes, and read such rows but once.

    Rows that are too long, or no whole number of packs, are left to Triton where it is: its
    kernels hold them.
    """
    dtype = x.dtype
    longest = _LONGEST.get(dtype)
    shape = x.shape
    if longest is None or not shape:
        return False
    hidden = shape[-1]
    if HAS_TRITON and (hidden % _PACK or hidden > longest[is_recorded]):
        return False
    if weight is None:
        if bias is not None and bias.dtype is not dtype:
            return False
    else:
        if weight.dtype is not dtype and weight.dtype is not torch.float32:
            return False
        if bias is not None and bias.dtype is not weight.dtype:
            return False
    return residual is None or residual.dtype is dtype or residual.dtype is torch.float32


def is_better_in_triton(x: torch.Tensor, is_rms: bool) -> bool:
    """Whether Triton's forward of such an `x` is the faster, launched as this version of it can be.

    Measured on an H200: docs/kernels/triton-layer-norm.md.
    """
    if x.numel() >= _LONG:
        return HAS_TRITON and not (is_rms and x.shape[-1] <= _LONG_ROWS)
    return LAUNCHES_DIRECTLY


class _Norm(torch.autograd.Function):
    """y of (x, weight, bias)."""

    @staticmethod
    def forward(  # in the order of apply
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        is_rms: bool,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.options = (eps, is_rms)
        return norm(x, weight, bias, eps, is_rms)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            return _once_differentiate_norm(ctx, dy)
        return _differentiate_norm(ctx, dy)


def _differentiate_norm(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    _, wants_weight, wants_bias, _, _ = ctx.needs_input_grad
    dx, dweight, dbias = norm_backward(x, weight, dy, None, *ctx.options, wants_weight, wants_bias)
    return dx, dweight if wants_weight else None, dbias if wants_bias else None, None, None


# Refuses a gradient of the gradient. Its wrapper takes as long as the op, and is of use only where
# autograd records the backward, too.
_once_differentiate_norm = once_differentiable(_differentiate_norm)


class _AddNorm(torch.autograd.Function):
    """y and the sum of (x, residual, weight, bias)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        is_rms: bool,
        wide_sum: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y, total = add_norm(x, residual, weight, bias, eps, is_rms, wide_sum)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight)
        ctx.options = (eps, is_rms)
        ctx.dtypes = (x.dtype, residual.dtype)
        return y, total

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dy: torch.Tensor | None, dsum: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        total, weight = ctx.saved_tensors
        _, _, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        dweight = dbias = None
        dh = dsum
        if dy is not None:
            # A sum in float32 wants everything beside it in float32; autograd rounds what is left.
            wide = total.dtype
            if weight is not None and weight.dtype is not wide and wide is torch.float32:
                weight = weight.float()
            dh, dweight, dbias = norm_backward(
                total, weight, dy.to(wide), dsum, *ctx.options, wants_weight, wants_bias
            )
        if dh is None:
            return (None,) * 7
        x_dtype, residual_dtype = ctx.dtypes
        rest = (dweight if wants_weight else None, dbias if wants_bias else None)
        return dh.to(x_dtype), dh.to(residual_dtype), *rest, None, None, None


# Function.apply first asks what torch.func's transforms do with the inputs; the callers
# have already found that there is none.
record_norm = super(torch.autograd.Function, _Norm).apply
record_add_norm = super(torch.autograd.Function, _AddNorm).apply


def _register_fakes() -> None:
    # torch also comes here where one tensor of several is on the device meta: the checks refuse that.
    def fake_norm(
        x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, *_others: Any
    ) -> torch.Tensor:
        check_norm(x, weight, bias, None)
        return x.new_empty(x.shape)

    def fake_add_norm(
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        _eps: float,
        _is_rms: bool,
        wide_sum: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        check_norm(x, weight, bias, residual)
        dtype = torch.float32 if wide_sum else x.dtype
        return x.new_empty(x.shape), x.new_empty(x.shape, dtype=dtype)

    def fake_norm_backward(
        h: torch.Tensor, weight: torch.Tensor | None, dy: torch.Tensor, *others: Any
    ) -> tuple[torch.Tensor, ...]:
        check_norm(h, weight, None, dy)
        dtype = h.dtype if weight is None else weight.dtype
        sums = (h.new_empty(h.shape[-1] if wanted else 0, dtype=dtype) for wanted in others[-2:])
        return h.new_empty(h.shape), *sums

    fakes = {
        "cuda_norm": fake_norm,
        "cuda_add_norm": fake_add_norm,
        "cuda_norm_backward": fake_norm_backward,
    }
    for name, fake in fakes.items():
        torch.library.register_fake(add_op_namespace_prefix(name), fake)


if is_here:
    _register_fakes()
