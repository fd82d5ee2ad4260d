"""The functions of this kernel as modules, to stand in for a model's own activation layers.

They have no parameters and no ``__init__``, so their ``forward`` can be put into an
existing layer. All have a backward pass.
"""

from __future__ import annotations

import torch
from torch import nn

from ._autograd import activator, forward_of

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


class Silu(nn.Module):
    """``x / (1 + exp(-x))``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("silu")


class Gelu(nn.Module):
    """``x Φ(x)``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("gelu")


class GeluTanh(nn.Module):
    """``F.gelu(x, approximate="tanh")``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("gelu_tanh")


class FastGELU(nn.Module):
    """``x (1 + tanh(√(2/π) x (1 + 0.044715 x²))) / 2``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("gelu_fast")


class NewGELU(nn.Module):
    """``x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("gelu_new")


class QuickGELU(nn.Module):
    """``x / (1 + exp(-1.702 x))``, of the shape of `x`."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("gelu_quick")


class SiluAndMul(nn.Module):
    """``silu(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("silu_and_mul")


class MulAndSilu(nn.Module):
    """``a silu(b)`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("mul_and_silu")


class GeluAndMul(nn.Module):
    """``gelu(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("gelu_and_mul")


class GeluTanhAndMul(nn.Module):
    """``gelu_tanh(a) b`` of shape (…, d), ``a, b`` being the halves of `x` (…, 2d)."""

    can_torch_compile: bool = True
    has_backward: bool = True

    forward = forward_of("gelu_tanh_and_mul")


class FatreluAndMul(nn.Module):
    """``(a if a > threshold else 0) b`` of shape (…, d) for the halves of `x` (…, 2d).

    The threshold is the attribute of that name of the layer it is put into; without one, 0.
    """

    can_torch_compile: bool = True
    has_backward: bool = True

    threshold: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _fatrelu_and_mul(x, getattr(self, "threshold", 0.0))
