"""The ops that torch knows of: what torch.compile, its modes and its transforms see."""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

from typing import Any

import torch

from . import _compiled, _launch, reference
from ._ops import add_op_namespace_prefix, ops

__all__ = ["add_norm", "norm"]

Optional = torch.Tensor | None


def norm(x: torch.Tensor, weight: Optional, bias: Optional, eps: float, is_rms: bool) -> Any:
    """Return the norm of the rows of `x`, dense."""
    return ops.norm(x, weight, bias, eps, is_rms)


def add_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: Optional,
    bias: Optional,
    eps: float,
    is_rms: bool,
    sum_dtype: torch.dtype,
) -> Any:
    """Return the norm of the rows of ``x + residual`` and the sum, both dense."""
    return ops.add_norm(x, residual, weight, bias, eps, is_rms, sum_dtype)


@torch.library.custom_op(
    add_op_namespace_prefix("norm"),
    mutates_args=(),
    schema="(Tensor x, Tensor? weight, Tensor? bias, float eps, bool is_rms) -> Tensor",
)
def _norm(x: torch.Tensor, weight: Optional, bias: Optional, eps: float, is_rms: bool) -> Any:
    if x.is_cuda and _compiled.is_here and _compiled.is_better(x, weight, bias, is_rms, False):
        return _compiled.norm(x, weight, bias, eps, is_rms)
    plan = _launch.find_plan(x, None, weight, bias, is_rms, None) if x.is_cuda else None
    if plan is not None:
        return plan.norm(x, weight, bias, eps)
    return reference.norm(x, weight, bias, eps, is_rms=is_rms).contiguous()


@torch.library.custom_op(
    add_op_namespace_prefix("add_norm"),
    mutates_args=(),
    schema="(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps, bool is_rms,"
    " ScalarType sum_dtype) -> (Tensor, Tensor)",
)
def _add_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: Optional,
    bias: Optional,
    eps: float,
    is_rms: bool,
    sum_dtype: torch.dtype,
) -> Any:
    if (
        x.is_cuda
        and _compiled.is_here
        and sum_dtype in (x.dtype, torch.float32)
        and _compiled.fits(x, residual, weight, bias, False)
    ):
        return _compiled.add_norm(
            x, residual, weight, bias, eps, is_rms, sum_dtype is torch.float32
        )
    plan = _launch.find_plan(x, residual, weight, bias, is_rms, sum_dtype) if x.is_cuda else None
    if plan is not None:
        return plan.add_norm(x, residual, weight, bias, eps)
    y, total = reference.add_norm(
        x, residual, weight, bias, eps, is_rms=is_rms, sum_dtype=sum_dtype
    )
    return y.contiguous(), total.contiguous()


@torch.library.custom_op(
    add_op_namespace_prefix("norm_backward"),
    mutates_args=(),
    schema="(Tensor h, Tensor? weight, Tensor dy, Tensor? dsum, float eps, bool is_rms,"
    " ScalarType? dweight_dtype, ScalarType? dbias_dtype) -> (Tensor, Tensor, Tensor)",
)
def _norm_backward(
    h: torch.Tensor,
    weight: Optional,
    dy: torch.Tensor,
    dsum: Optional,
    eps: float,
    is_rms: bool,
    dweight_dtype: torch.dtype | None,
    dbias_dtype: torch.dtype | None,
) -> Any:
    """Gradients that nobody wants have no elements, since a custom_op cannot return None."""
    wants = (dweight_dtype is not None, dbias_dtype is not None)
    dtypes = {h.dtype, dy.dtype, h.dtype if dsum is None else dsum.dtype}
    sums_dtype = h.dtype if weight is None else weight.dtype
    if (
        h.is_cuda
        and _compiled.is_here
        and len(dtypes) == 1
        and {dweight_dtype, dbias_dtype} <= {None, sums_dtype}
        and _compiled.fits(h, None, weight, None, True)
    ):
        dh, dweight, dbias = _compiled.norm_backward(h, weight, dy, dsum, eps, is_rms, *wants)
    elif h.is_cuda and _launch.find_plan(h, None, weight, None, is_rms, None) is not None:
        dh, dweight, dbias = _launch.backward(
            *(h, weight, dy, dsum, eps),
            is_rms=is_rms,
            dweight_dtype=dweight_dtype,
            dbias_dtype=dbias_dtype,
        )
    else:
        dh, dweight, dbias = reference.norm_backward(h, weight, dy, dsum, eps, is_rms=is_rms)
        dh = dh.contiguous()
        dweight = None if dweight_dtype is None else dweight.to(dweight_dtype)
        dbias = None if dbias_dtype is None else dbias.to(dbias_dtype)
    return (
        dh,
        h.new_empty(0) if dweight is None else dweight,
        h.new_empty(0) if dbias is None else dbias,
    )


@_norm.register_fake
def _(x: torch.Tensor, *_others: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


@_add_norm.register_fake
def _(x: torch.Tensor, residual: torch.Tensor, *others: Any) -> Any:
    return x.new_empty(x.shape), residual.new_empty(residual.shape, dtype=others[-1])


@_norm_backward.register_fake
def _(h: torch.Tensor, _weight: Optional, *others: Any) -> Any:
    def of(dtype: torch.dtype | None) -> torch.Tensor:
        return h.new_empty(0) if dtype is None else h.new_empty(h.shape[-1], dtype=dtype)

    return h.new_empty(h.shape), of(others[-2]), of(others[-1])


def _keep_for_norm(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, eps, is_rms = inputs
    ctx.save_for_backward(x, weight)
    ctx.options = (eps, is_rms, None if bias is None else bias.dtype)


def _differentiate_norm(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    eps, is_rms, bias_dtype = ctx.options
    gradients = _gradients(ctx.needs_input_grad[1:3], x, weight, dy, None, eps, is_rms, bias_dtype)
    return *gradients, None, None


def _keep_for_add_norm(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, residual, weight, bias, eps, is_rms, _ = inputs
    ctx.save_for_backward(output[1], weight)
    bias_dtype = None if bias is None else bias.dtype
    ctx.options = (eps, is_rms, bias_dtype, x.dtype, residual.dtype)


def _differentiate_add_norm(ctx: Any, dy: torch.Tensor, dsum: torch.Tensor) -> tuple[Any, ...]:
    total, weight = ctx.saved_tensors
    eps, is_rms, bias_dtype, x_dtype, residual_dtype = ctx.options
    dh, dweight, dbias = _gradients(
        ctx.needs_input_grad[2:4], total, weight, dy, dsum, eps, is_rms, bias_dtype
    )
    return dh.to(x_dtype), dh.to(residual_dtype), dweight, dbias, None, None, None


def _gradients(
    wanted: tuple[bool, bool],
    h: torch.Tensor,
    weight: Optional,
    dy: torch.Tensor,
    dsum: Optional,
    eps: float,
    is_rms: bool,
    bias_dtype: torch.dtype | None,
) -> tuple[Any, Any, Any]:
    dweight_dtype = weight.dtype if wanted[0] and weight is not None else None
    dbias_dtype = bias_dtype if wanted[1] else None
    dh, dweight, dbias = ops.norm_backward(
        h, weight, dy, dsum, eps, is_rms, dweight_dtype, dbias_dtype
    )
    return (
        dh,
        None if dweight_dtype is None else dweight,
        None if dbias_dtype is None else dbias,
    )


_norm.register_autograd(_differentiate_norm, setup_context=_keep_for_norm)
_add_norm.register_autograd(_differentiate_add_norm, setup_context=_keep_for_add_norm)
