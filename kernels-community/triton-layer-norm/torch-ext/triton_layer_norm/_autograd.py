"""Calls of Triton's forward that are recorded, past the parts of torch that they do not need.

The backward is the compiled one where that takes the tensors: it takes half as long on the host, and
less on the device, but for short calls. The rows are normalised again in the backward, which reads
them anyway, so the forward keeps nothing but its inputs.
"""

from __future__ import annotations

from typing import Any

import torch

from . import _compiled, _launch
from ._recording import differentiate_in_steps, find_recorder, needs_steps

__all__ = ["add_norm", "norm"]


def _dtype_if(wanted: bool, x: torch.Tensor | None) -> torch.dtype | None:
    return x.dtype if wanted and x is not None else None


class Norm(torch.autograd.Function):
    """y of (x, weight, bias); the plan and the epsilon have no gradient."""

    @staticmethod
    def forward(  # noqa: PLR0917  (in the order of apply)
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        plan: _launch.ForwardPlan,
        eps: float,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight, bias)
        ctx.options = (plan, eps)
        return plan.norm(x, weight, bias, eps)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        plan, eps = ctx.options
        _, wants_weight, wants_bias, _, _ = ctx.needs_input_grad
        if needs_steps(dy):
            gradients = differentiate_in_steps(
                x, weight, dy, None, eps, plan.is_rms, wants_weight, wants_bias
            )
        elif _compiled.is_here and _compiled.fits(x, None, weight, bias, True):
            gradients = _compiled.norm_backward(
                x, weight, dy, None, eps, plan.is_rms, wants_weight, wants_bias
            )
        else:
            gradients = _launch.backward(
                *(x, weight, dy, None, eps),
                is_rms=plan.is_rms,
                dweight_dtype=_dtype_if(wants_weight, weight),
                dbias_dtype=_dtype_if(wants_bias, bias),
            )
        return *gradients, None, None


class AddNorm(torch.autograd.Function):
    """y and the sum of (x, residual, weight, bias)."""

    @staticmethod
    def forward(
        ctx: Any, plan: _launch.ForwardPlan, eps: float, *inputs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual, weight, bias = inputs
        y, total = plan.add_norm(*inputs, eps)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(total, weight, bias)
        ctx.options = (eps, plan.is_rms, x.dtype, residual.dtype)
        return y, total

    @staticmethod
    def backward(
        ctx: Any, dy: torch.Tensor | None, dsum: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        total, weight, bias = ctx.saved_tensors
        eps, is_rms, x_dtype, residual_dtype = ctx.options
        _, _, _, _, wants_weight, wants_bias = ctx.needs_input_grad
        dweight = dbias = None
        if dy is None:
            dh = dsum
        elif needs_steps(dy, dsum):
            dh, dweight, dbias = differentiate_in_steps(
                total, weight, dy, dsum, eps, is_rms, wants_weight, wants_bias
            )
        else:
            dh, dweight, dbias = _launch.backward(
                *(total, weight, dy, dsum, eps),
                is_rms=is_rms,
                dweight_dtype=_dtype_if(wants_weight, weight),
                dbias_dtype=_dtype_if(wants_bias, bias),
            )
        if dh is None:
            return (None,) * 6
        return None, None, dh.to(x_dtype), dh.to(residual_dtype), dweight, dbias


norm = find_recorder(Norm)
add_norm = find_recorder(AddNorm)
