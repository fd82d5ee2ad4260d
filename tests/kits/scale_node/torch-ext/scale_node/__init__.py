"""A tensor times a number; its node of autograd is in C++ where there is one for the torch that runs."""

from typing import Any

import torch

from ._ops import add_op_namespace_prefix, load_per_torch, ops

has_node = load_per_torch()


@torch.library.register_fake(add_op_namespace_prefix("scale"))
def _scale_fake(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return ops.scale(x, factor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _Scale.apply(gradient, ctx.factor), None


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """Return x times a factor; x is float32 and on the CPU, or this is a ValueError."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        raise ValueError(f"x must be torch.float32 on the CPU, not {x.dtype} on {x.device}")
    return ops.scale(x, factor) if has_node else _Scale.apply(x, factor)
