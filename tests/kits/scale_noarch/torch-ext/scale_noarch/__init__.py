"""Scales a tensor by a number, in Python alone."""

import torch

from ._ops import add_op_namespace_prefix, ops


@torch.library.custom_op(add_op_namespace_prefix("scale"), mutates_args=())
def _scale(input: torch.Tensor, factor: float) -> torch.Tensor:
    return input * factor


@_scale.register_fake
def _(input: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(input)


def scale(input: torch.Tensor, factor: float) -> torch.Tensor:
    """Return ``input * factor``."""
    return ops.scale(input, factor)


__all__ = ["scale"]
