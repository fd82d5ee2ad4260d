"""The gradients of the functions in plain torch, for devices without a kernel for them.

Tests on a GPU compare the kernels with these. Everything is computed in float32 (float64 for
float64) and rounded once; beyond |x| = 200 the slopes are those of the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

__all__ = ["input_gradient"]

Tangent = tuple[torch.Tensor, torch.Tensor]  # a function's value and its slope
_FAR = 200.0


def _gelu(x: torch.Tensor) -> Tangent:
    near = x.clamp(-_FAR, _FAR)
    probability = torch.special.erfc(-near / math.sqrt(2)) / 2
    density = torch.exp(near * near / -2) / math.sqrt(2 * math.pi)
    return x * probability, probability + near * density


def _times_sigmoid(x: torch.Tensor, z: torch.Tensor, dz: torch.Tensor | float) -> Tangent:
    """``x sigmoid(z)``, where ``dz`` is the slope of z times x."""
    value = torch.sigmoid(z)
    return x * value, value * (1 + dz * torch.sigmoid(-z))


def _gelu_tanh(x: torch.Tensor) -> Tangent:
    near = x.clamp(-_FAR, _FAR)
    scale, square = 2 * math.sqrt(2 / math.pi), near * near
    z = scale * near * (1 + 0.044715 * square)
    return _times_sigmoid(x, z, scale * near * (1 + 3 * 0.044715 * square))


def _gelu_quick(x: torch.Tensor) -> Tangent:
    z = 1.702 * x.clamp(-_FAR, _FAR)
    return _times_sigmoid(x, z, z)


def _silu(x: torch.Tensor) -> Tangent:
    z = x.clamp(-_FAR, _FAR)
    return _times_sigmoid(x, z, z)


def _fatrelu(x: torch.Tensor, threshold: float) -> Tangent:
    slope = torch.where(x <= threshold, 0.0, 1.0).to(x.dtype)
    return torch.where(x <= threshold, torch.zeros_like(x), x), slope


_TANGENTS: dict[str, Callable[..., Tangent]] = {
    "fatrelu": _fatrelu,
    "gelu": _gelu,
    "gelu_quick": _gelu_quick,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}


def input_gradient(op: str, grad: torch.Tensor, x: torch.Tensor, *options: float) -> torch.Tensor:
    """Return the gradient of `x` (the whole input), given that of ``op``'s result.

    `op` is the name of an op without ``_backward``: ``silu``, ``mul_and_silu``, ...
    """
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    grad, values = grad.to(wide), x.to(wide)
    if op in _TANGENTS:
        return (grad * _TANGENTS[op](values, *options)[1]).to(x.dtype)
    swapped = op == "mul_and_silu"
    kind = "silu" if swapped else op.removesuffix("_and_mul")
    first, second = values.chunk(2, dim=-1)
    gate, factor = (second, first) if swapped else (first, second)
    value, slope = _TANGENTS[kind](gate, *options)
    of_gate, of_factor = grad * factor * slope, grad * value
    parts = (of_factor, of_gate) if swapped else (of_gate, of_factor)
    return torch.cat(parts, dim=-1).to(x.dtype)
