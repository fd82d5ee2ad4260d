"""The compiled ops, where this variant has them: what they take, and their recorded calls.

They check, allocate and launch in C++, in one call from Python. Where autograd records, the forward
keeps its inputs alone, since the backward reads the rows anyway and normalises them again. That is recorded
in C++ where this variant has a library for the very torch that runs, and the same way in Python elsewhere.
"""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._checks import check_norm
from ._launch import HAS_TRITON, LAUNCHES_DIRECTLY
from ._ops import add_op_namespace_prefix, load_per_torch, ops
from ._recording import differentiate_in_steps, find_recorder, needs_steps

__all__ = [
    "add_norm",
    "fits",
    "has_node",
    "is_better",
    "is_here",
    "norm",
    "norm_backward",
    "record_add_norm",
    "record_norm",
]

is_here: bool = hasattr(ops, "cuda_norm")
# Whether the ops record themselves: csrc/node/norm_node.cpp, loaded here.
has_node: bool = is_here and load_per_torch()

# The longest rows that are read once, by the dtype of x: forward, and with a backward to come.
_LONGEST = {
    torch.float32: (8192, 4096),
    torch.bfloat16: (16384, 8192),
    torch.float16: (16384, 8192),
}
_PACK = 8  # rows of a multiple of it are read in whole packs
# Where the compiled forward is the faster one: 16-bit rows that it has a kernel for, and other RMSNorms of so
# many elements, in rows of at most so many; in longer rows, Triton's LayerNorm of so many is.
_COMMON = frozenset({2048, 4096, 8192})
_HALVES = frozenset({torch.float16, torch.bfloat16})
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


def is_better(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    is_rms: bool,
    is_recorded: bool,
) -> bool:
    """Whether the compiled norm takes such tensors, and is the faster one.

    Short calls that autograd records are better here: the host is what takes the time then, and it
    is done sooner. Measured on an H200: docs/kernels/triton-layer-norm.md.
    """
    if (
        weight is not None
        # The op refuses a weight that does not fit x, whose shape takes longer to ask for.
        and weight.numel() in _COMMON
        and (dtype := x.dtype) in _HALVES
        and weight.dtype is dtype
        and (bias is None or bias.dtype is dtype)
    ):
        return is_rms or weight.numel() <= _LONG_ROWS or x.numel() < _LONG or not HAS_TRITON
    if not fits(x, None, weight, bias, is_recorded):
        return False
    if x.numel() >= _LONG:
        return not HAS_TRITON or (is_rms and x.shape[-1] <= _LONG_ROWS)
    return is_recorded or not LAUNCHES_DIRECTLY


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
        x, weight = ctx.saved_tensors
        _, wants_weight, wants_bias, _, _ = ctx.needs_input_grad
        eps, is_rms = ctx.options
        differentiate = differentiate_in_steps if needs_steps(dy) else norm_backward
        gradients = differentiate(x, weight, dy, None, eps, is_rms, wants_weight, wants_bias)
        return *gradients, None, None


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
        ctx.options = (eps, is_rms, x.dtype, residual.dtype)
        return y, total

    @staticmethod
    def backward(
        ctx: Any, dy: torch.Tensor | None, dsum: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        total, weight = ctx.saved_tensors
        eps, is_rms, x_dtype, residual_dtype = ctx.options
        _, _, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        dweight = dbias = None
        dh = dsum
        if dy is not None and needs_steps(dy, dsum):
            dh, dweight, dbias = differentiate_in_steps(
                total, weight, dy, dsum, eps, is_rms, wants_weight, wants_bias
            )
        elif dy is not None:
            # A sum in float32 wants everything beside it in float32; autograd rounds what is left.
            wide = total.dtype
            if weight is not None and weight.dtype is not wide and wide is torch.float32:
                weight = weight.float()
            if dy.dtype is not wide:
                dy = dy.to(wide)
            dh, dweight, dbias = norm_backward(
                total, weight, dy, dsum, eps, is_rms, wants_weight, wants_bias
            )
        if dh is None:
            return (None,) * 7
        dx = dh if dh.dtype is x_dtype else dh.to(x_dtype)
        dresidual = dh if dh.dtype is residual_dtype else dh.to(residual_dtype)
        return dx, dresidual, dweight, dbias, None, None, None


in_python = (find_recorder(_Norm), find_recorder(_AddNorm))
record_norm, record_add_norm = (
    (_find("cuda_recorded_norm"), _find("cuda_recorded_add_norm")) if has_node else in_python
)


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
    ) -> tuple[torch.Tensor | None, ...]:
        check_norm(h, weight, None, dy)
        dtype = h.dtype if weight is None else weight.dtype
        sums = (h.new_empty(h.shape[-1], dtype=dtype) if wanted else None for wanted in others[-2:])
        return h.new_empty(h.shape), *sums

    fakes = {
        "cuda_norm": fake_norm,
        "cuda_add_norm": fake_add_norm,
        "cuda_recorded_norm": fake_norm,
        "cuda_recorded_add_norm": fake_add_norm,
        "cuda_norm_backward": fake_norm_backward,
    }
    for name, fake in fakes.items():
        torch.library.register_fake(add_op_namespace_prefix(name), fake)


if is_here:
    _register_fakes()
