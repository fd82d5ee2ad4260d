"""Recording a call for autograd with as little Python as torch.autograd.Function allows, and its backward.

Both halves matter more than their microseconds: the backward runs in a thread of its own, and each
thread sleeps while it waits for the other.
"""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import reference

__all__ = ["differentiate_in_steps", "find_recorder"]


def find_recorder(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return what records a call of `function`, for callers that know of no torch.func transform.

    ``Function.apply`` first asks what the transforms do with the inputs; and what the engine calls of a
    node asks each time which of two names its backward has.
    """
    node = getattr(function, "_backward_cls", None)
    if node is not None:
        node.apply = function.backward
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def differentiate_in_steps(
    h: torch.Tensor,
    weight: torch.Tensor | None,
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
    eps: float,
    is_rms: bool,
    wants_weight: bool,
    wants_bias: bool,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of h, weight and bias by torch's own ops, so that autograd records them in turn."""
    dh, dweight, dbias = reference.norm_backward(h, weight, dy, dsum, eps, is_rms=is_rms)
    return dh, dweight if wants_weight else None, dbias if wants_bias else None
