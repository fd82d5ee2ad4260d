"""Recording a call for autograd with as little Python as torch.autograd.Function allows, and its backward.

Both halves matter more than their microseconds: the backward runs in a thread of its own, and each
thread sleeps while it waits for the other.
"""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from . import reference

__all__ = ["differentiate_in_steps", "find_recorder", "forward_mode", "needs_steps"]

# What tells the level of forward mode, below 0 where there is none.
forward_mode: Any = (
    forward_ad if hasattr(forward_ad, "_current_level") else SimpleNamespace(_current_level=-1)
)
_is_grad_enabled = torch.is_grad_enabled
_functorch_level = torch._C._functorch.peek_interpreter_stack
# Whether torch.autograd.grad(is_grads_batched=True) holds many gradients in one tensor; Dynamo cannot trace the question.
_is_batched_by_grad = torch._C._functorch.is_legacy_batchedtensor


def find_recorder(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return what records a call of `function`, for callers that know of no torch.func transform.

    ``Function.apply`` first asks what the transforms do with the inputs; and what the engine calls of a
    node asks each time which of two names its backward has.
    """
    node = getattr(function, "_backward_cls", None)
    if node is not None:
        node.apply = function.backward
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


def needs_steps(dy: torch.Tensor, dsum: torch.Tensor | None = None) -> bool:
    """Whether a backward is one for torch's own ops, of the gradients that come in.

    It is recorded in its turn, or they are more than their values: many in one tensor, or with a tangent of
    forward mode. torch knows what each of its ops makes of that; ours would fail, or drop the tangent.
    """
    if _is_grad_enabled() or forward_mode._current_level >= 0 or _functorch_level() is not None:
        return True
    if is_dynamo_compiling():
        return False
    return _is_batched_by_grad(dy) or (dsum is not None and _is_batched_by_grad(dsum))


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
