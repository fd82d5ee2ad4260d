"""The functions of this kernel as modules, to stand in for a model's own activation layers.

They have no parameters and no ``__init__``, so their ``forward`` can be put into an
existing layer. All have a backward pass.
"""

from __future__ import annotations

import torch
from torch import nn

from ._autograd import activator

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

_fatrelu_and_mul = activator("fatrelu_and_mul")
_gelu = activator("gelu")
_gelu_and_mul = activator("gelu_and_mul")
_gelu_fast = activator("gelu_fast")
_gelu_new = activator("gelu_new")
_gelu_quick = activator("gelu_quick")
_gelu_tanh = activator("gelu_tanh")
_gelu_tanh_and_mul = activator("gelu_tanh_and_mul")
_mul_and_silu = activator("mul_and_silu")
_silu = activator("silu")
_silu_and_mul = activator("silu_and_mul")


class Silu(nn.Module):
    """``x / (1 + exp(-x))``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _silu(x)


class Gelu(nn.Module):
    """``x Φ(x)``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _gelu(x)


class GeluTanh(nn.Module):
    """``F.gelu(x, approximate="tanh")``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _gelu_tanh(x)


class FastGELU(nn.Module):
    """``x (1 + tanh(√(2/π) x (1 + 0.044715 x²))) / 2``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _gelu_fast(x)


class NewGELU(nn.Module):
    """``x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _gelu_new(x)


class QuickGELU(nn.Module):
    """``x / (1 + exp(-1.702 x))``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _gelu_quick(x)


class SiluAndMul(nn.Module):
    """``silu(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _silu_and_mul(x)


class MulAndSilu(nn.Module):
    """``a silu(b)`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _mul_and_silu(x)


class GeluAndMul(nn.Module):
    """``gelu(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _gelu_and_mul(x)


class GeluTanhAndMul(nn.Module):
    """``gelu_tanh(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _gelu_tanh_and_mul(x)


class FatreluAndMul(nn.Module):
    """``(a if a > threshold else 0) b`` of shape (…, d) for the halves of `x` (…, 2d).

    The threshold is the attribute of that name of the layer it is put into; without one, 0.
    """

    can_torch_compile: bool = True
    has_backward: bool = True

    threshold: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _fatrelu_and_mul(x, getattr(self, "threshold", 0.0))
