"""What each function does where autograd records, and where it does not."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.autograd.graph import increment_version

from . import gradients
from ._checks import check_input, check_output
from ._ops import add_op_namespace_prefix, ops

# The overloads themselves: torch would look for them again in every call.
_FORWARD = {
    name: getattr(ops, name).default
    for name in (
        "fatrelu_and_mul",
        "gelu",
        "gelu_and_mul",
        "gelu_fast",
        "gelu_new",
        "gelu_quick",
        "gelu_tanh",
        "gelu_tanh_and_mul",
        "mul_and_silu",
        "silu",
        "silu_and_mul",
    )
}
# Three names of one function have one gradient.
_GRADIENT_OF = {name: name for name in _FORWARD} | {
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}
# Only some devices have kernels for gradients, and so only some builds have the ops.
_BACKWARD = {
    name: getattr(ops, f"{name}_backward").default
    for name in sorted(set(_GRADIENT_OF.values()))
    if hasattr(ops, f"{name}_backward")
}


def fill(op: str, out: torch.Tensor, x: torch.Tensor, *options: float) -> None:
    """Fill `out` with what `op` makes of `x`; a gradient flows through `out` if `x` wants one.

    Raises:
        ValueError: `out` or `x` is not as `op` needs it.
    """
    if (x.requires_grad or out.requires_grad) and torch.is_grad_enabled():
        check_output(op, out, x)
        out.copy_(activate(op, x, *options))
        return
    _call(op, out, x, *options)
    if not torch.compiler.is_compiling():
        # So that a backward that still needs what `out` held before fails instead of using this.
        increment_version(out)


def activate(op: str, x: torch.Tensor, *options: float) -> torch.Tensor:
    """Return what `op` makes of `x`.

    Raises:
        ValueError: `x` is not as `op` needs it.
    """
    if x.requires_grad and torch.is_grad_enabled():
        return _record(op, x, *options)
    return _compute(op, x, *options)


def _call(op: str, out: torch.Tensor, x: torch.Tensor, *options: float) -> None:
    # The op itself refuses what is wrong. Only then it is looked at here, to say it better: to ask
    # tensors for their shapes from Python takes as long as the rest of a call.
    try:
        _FORWARD[op](out, x, *options)
    except RuntimeError:
        check_output(op, out, x)
        raise


def _compute(op: str, x: torch.Tensor, *options: float) -> torch.Tensor:
    if "_and_" in op:
        check_input(op, x)
        out = x.new_empty((*x.shape[:-1], x.shape[-1] // 2))
    else:
        out = torch.empty_like(x)
    _call(op, out, x, *options)
    return out


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: str, x: torch.Tensor, *options: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.gradient_of = _GRADIENT_OF[op]
        ctx.options = options
        return _compute(op, x, *options)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        (x,) = ctx.saved_tensors
        op, options = ctx.gradient_of, ctx.options
        # A second derivative is asked for where autograd records here: plain torch has one.
        if x.is_cuda and op in _BACKWARD and not torch.is_grad_enabled():
            grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
            _BACKWARD[op](grad_x, grad, x, *options)
        else:
            grad_x = gradients.input_gradient(op, grad, x, *options)
        return None, grad_x, *(None for _ in options)


# What Function.apply calls once it knows that no transform of torch.func is active.
_apply = super(torch.autograd.Function, _Activate).apply


def _record(op: str, x: torch.Tensor, *options: float) -> torch.Tensor:
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return _Activate.apply(op, x, *options)
    return _apply(op, x, *options)


def _register_fakes() -> None:
    """Tell torch.compile that the ops only write into their first argument, and check the others.

    A fake also stands for the ops on the device ``meta``.
    """
    for name in _FORWARD:
        torch.library.register_fake(add_op_namespace_prefix(name), partial(check_output, name))
    for name in _BACKWARD:
        torch.library.register_fake(add_op_namespace_prefix(f"{name}_backward"), _fill_first)


def _fill_first(*_arguments: object) -> None:
    return None


_register_fakes()
