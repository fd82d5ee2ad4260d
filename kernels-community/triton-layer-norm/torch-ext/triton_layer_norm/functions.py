"""The functions of this kernel: each finds the shortest way to the device kernels.

Plain tensors outside torch.compile go to the compiled ops, where this variant has them and they
take such rows, else to Triton's kernels without torch's dispatcher, which costs as much as the
kernel for few rows; everything else goes through the registered ops.
"""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

import torch

from . import _autograd, _compiled, _launch, _registered, reference
from ._checks import check_norm, refuse_unsupported
from ._recording import forward_mode

__all__ = ["layer_norm_fn", "rms_norm_fn", "rms_norm_forward"]

Result = torch.Tensor | tuple[torch.Tensor, torch.Tensor]

_PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter})
# Where our node of autograd is a Python one, the host is what takes the time up to so many elements, in a
# model too, and torch's own functions record in C++. Measured: docs/kernels/triton-layer-norm.md.
_FEW_RECORDED = 1 << 21
_HAS_FUSED_RMS_NORM = hasattr(torch.ops.aten, "_fused_rms_norm_backward")

_rms_norm = torch.rms_norm
_is_grad_enabled = torch.is_grad_enabled
_is_compiling = torch.compiler.is_compiling
_dispatch_modes = torch._C._len_torch_dispatch_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack


def rms_norm_fn(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    eps: float = 1e-6,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    **unsupported: object,
) -> Result:
    """Return ``h / sqrt(mean(h²) + eps) * weight + bias`` for ``h = x + residual``.

    Args:
        x: (…, hidden).
        weight: (hidden,) of any floating dtype, or None for ones.
        bias: (hidden,), or None for zeros.
        residual: of the shape of `x`, in any floating dtype, added in float32.
        eps: added to the mean of the squares.
        prenorm: also return ``h``, rounded to the dtype of `residual` (or of `x`, without one).
        residual_in_fp32: return ``h`` in float32.
        unsupported: other options of the functions of this name; only their neutral values.

    Returns:
        y of the shape and dtype of `x`, or ``(y, h)`` with `prenorm`.

    Raises:
        ValueError: shapes, dtypes or devices do not fit, or an unsupported option is used.
    """
    if unsupported:
        refuse_unsupported("rms_norm_fn", unsupported)
    if residual is None and not prenorm:
        return norm(x, weight, bias, eps, True)
    return _norm_with_sum(x, residual, weight, bias, eps, True, prenorm, residual_in_fp32)


rms_norm_forward = rms_norm_fn


def layer_norm_fn(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    eps: float = 1e-6,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
    **unsupported: object,
) -> Result:
    """Return ``(h - mean(h)) / sqrt(var(h) + eps) * weight + bias`` for ``h = x + residual``.

    With `is_rms_norm` it is `rms_norm_fn`, whose arguments, result and errors it shares.
    """
    if unsupported:
        refuse_unsupported("layer_norm_fn", unsupported)
    if residual is None and not prenorm:
        return norm(x, weight, bias, eps, is_rms_norm)
    return _norm_with_sum(x, residual, weight, bias, eps, is_rms_norm, prenorm, residual_in_fp32)


def _is_plain(x: torch.Tensor) -> bool:
    """Whether `x` is memory on a GPU, seen by no mode or transform of torch."""
    return (
        x.is_cuda
        and type(x) in _PLAIN_TYPES
        and not _dispatch_modes()
        and _functorch_level() is None
        and forward_mode._current_level < 0
    )


def _has_op(x: torch.Tensor) -> bool:
    """Whether the op is needed, and can be: transforms and forward mode go through the formulas."""
    return x.is_cuda and (
        _is_compiling() or (_functorch_level() is None and forward_mode._current_level < 0)
    )


def norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    is_rms: bool,
) -> torch.Tensor:
    """Return the norm alone, by the shortest way; the layers begin here."""
    # First: a graph is to hold for any number of rows.
    if not _is_compiling():
        is_recorded = _is_grad_enabled() and (
            x.requires_grad
            or (weight is not None and weight.requires_grad)
            or (bias is not None and bias.requires_grad)
        )
        try:
            if (
                is_recorded
                and _compiled.has_node
                and _is_plain(x)
                and _compiled.is_better(x, weight, bias, is_rms, True)
            ):
                return _compiled.record_norm(x, weight, bias, eps, is_rms)
            # What torch has as one kernel of its own, rounding as we do; it checks the shapes.
            if (
                is_recorded
                and weight is not None
                and 0 < x.numel() <= _FEW_RECORDED
                and weight.dtype is x.dtype
                and x.is_cuda
            ):
                if not is_rms:
                    if bias is None or bias.dtype is x.dtype:
                        return torch.layer_norm(x, x.shape[-1:], weight, bias, eps)
                elif bias is None and _HAS_FUSED_RMS_NORM:
                    return _rms_norm(x, x.shape[-1:], weight, eps)
            y = _norm_directly(x, weight, bias, eps, is_rms, is_recorded)
        except RuntimeError:
            check_norm(x, weight, bias, None)  # says it better
            raise
        if y is not None:
            return y
    check_norm(x, weight, bias, None)
    if _has_op(x):
        return _registered.norm(x, weight, bias, eps, is_rms)
    return reference.norm(x, weight, bias, eps, is_rms=is_rms)


def _norm_directly(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    is_rms: bool,
    is_recorded: bool,
) -> torch.Tensor | None:
    """Return the norm past the registered ops, or None where no kernel takes such tensors.

    Every line of it is host time of every call.
    """
    if not _is_plain(x):
        return None
    if _compiled.is_here and _compiled.is_better(x, weight, bias, is_rms, is_recorded):
        call = _compiled.record_norm if is_recorded else _compiled.norm
        return call(x, weight, bias, eps, is_rms)
    plan = _launch.find_plan(x, None, weight, bias, is_rms, None)
    if plan is None or not is_recorded:
        return None if plan is None else plan.norm(x, weight, bias, eps)
    return _autograd.norm(x, weight, bias, plan, eps)


def _add_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    is_rms: bool,
    sum_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    if not _is_compiling() and _is_plain(x):
        inputs = (x, residual, weight, bias)
        is_recorded = _is_grad_enabled() and (
            x.requires_grad
            or residual.requires_grad
            or (weight is not None and weight.requires_grad)
            or (bias is not None and bias.requires_grad)
        )
        if (
            _compiled.is_here
            and sum_dtype in (x.dtype, torch.float32)
            and _compiled.fits(*inputs, is_recorded)
        ):
            call = _compiled.record_add_norm if is_recorded else _compiled.add_norm
            try:
                return call(*inputs, eps, is_rms, sum_dtype is torch.float32)
            except RuntimeError:
                check_norm(x, weight, bias, residual)
                raise
        plan = _launch.find_plan(x, residual, weight, bias, is_rms, sum_dtype)
        if plan is not None:
            if is_recorded:
                return _autograd.add_norm(plan, eps, *inputs)
            return plan.add_norm(*inputs, eps)
    check_norm(x, weight, bias, residual)
    if _has_op(x):
        return _registered.add_norm(x, residual, weight, bias, eps, is_rms, sum_dtype)
    return reference.add_norm(x, residual, weight, bias, eps, is_rms=is_rms, sum_dtype=sum_dtype)


def _norm_with_sum(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    is_rms: bool,
    prenorm: bool,
    residual_in_fp32: bool,
) -> Result:
    if residual is None:
        total = x.float() if residual_in_fp32 else x
        return norm(x, weight, bias, eps, is_rms), total
    sum_dtype = torch.float32 if residual_in_fp32 else residual.dtype
    y, total = _add_norm(x, residual, weight, bias, eps, is_rms, sum_dtype)
    return (y, total) if prenorm else y
