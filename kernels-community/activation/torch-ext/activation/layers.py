"""The functions of this kernel as modules, to stand in for a model's own activation layers.

They have no parameters and no ``__init__``, so their ``forward`` can be put into an
existing layer. None has a backward pass.
"""

from __future__ import annotations

import torch
from torch import nn

from . import functions

__all__ = [
    "FastGELU",
    "FatreluAndMul",
    "Gelu",
    "GeluAndMul",
    "GeluTanh",
    "GeluTanhAndMul",
    "MulAndSilu",
    "NewGELU",
    "QuickGELU",
    "Silu",
    "SiluAndMul",
]


def _empty_half(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


class Silu(nn.Module):
    """``x / (1 + exp(-x))``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        functions.silu(out, x)
        return out


class Gelu(nn.Module):
    """``x Φ(x)``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        functions.gelu(out, x)
        return out


class GeluTanh(nn.Module):
    """``F.gelu(x, approximate="tanh")``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        functions.gelu_tanh(out, x)
        return out


class FastGELU(nn.Module):
    """``x (1 + tanh(√(2/π) x (1 + 0.044715 x²))) / 2``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        functions.gelu_fast(out, x)
        return out


class NewGELU(nn.Module):
    """``x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        functions.gelu_new(out, x)
        return out


class QuickGELU(nn.Module):
    """``x / (1 + exp(-1.702 x))``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        functions.gelu_quick(out, x)
        return out


class SiluAndMul(nn.Module):
    """``silu(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _empty_half(x)
        functions.silu_and_mul(out, x)
        return out


class MulAndSilu(nn.Module):
    """``a silu(b)`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _empty_half(x)
        functions.mul_and_silu(out, x)
        return out


class GeluAndMul(nn.Module):
    """``gelu(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _empty_half(x)
        functions.gelu_and_mul(out, x)
        return out


class GeluTanhAndMul(nn.Module):
    """``gelu_tanh(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _empty_half(x)
        functions.gelu_tanh_and_mul(out, x)
        return out


class FatreluAndMul(nn.Module):
    """``(a if a > threshold else 0) b`` of shape (…, d) for the halves of `x` (…, 2d).

    The threshold is the attribute of that name of the layer it is put into; without one, 0.
    """

    can_torch_compile: bool = True
    has_backward: bool = False

    threshold: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = _empty_half(x)
        functions.fatrelu_and_mul(out, x, getattr(self, "threshold", 0.0))
        return out
