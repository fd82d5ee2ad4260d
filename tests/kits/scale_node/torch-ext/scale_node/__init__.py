"""A tensor times a number; its node of autograd is in C++ where there is one for the torch that runs."""

from typing import Any

import torch

from ._ops import load_per_torch, ops

has_node = load_per_torch()


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return ops.scale(x, factor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _Scale.apply(gradient, ctx.factor), None


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Return x times a factor; x is float32."""
    return ops.scale(x, factor) if has_node else _Scale.apply(x, factor)
