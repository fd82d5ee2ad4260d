"""The functions of this kernel: each fills a tensor of the caller.

The layers use them too, so a mistake reads the same from both.
"""

# ruff: noqa: A002  (`input` is torch's own name for it)
from __future__ import annotations

import torch

from ._autograd import filler, fills

__all__ = [
    "fatrelu_and_mul",
    "gelu",
    "gelu_and_mul",
    "gelu_fast",
    "gelu_new",
    "gelu_quick",
    "gelu_tanh",
    "gelu_tanh_and_mul",
    "mul_and_silu",
    "silu",
    "silu_and_mul",
]

_fill_fatrelu_and_mul = filler("fatrelu_and_mul")


@fills
def gelu(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x Φ(x)``, Φ being the normal distribution function (``F.gelu``)."""


@fills
def gelu_fast(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x (1 + tanh(√(2/π) x (1 + 0.044715 x²))) / 2``."""


@fills
def gelu_new(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2``; the same as `gelu_fast`."""


@fills
def gelu_quick(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x / (1 + exp(-1.702 x))``."""


@fills
def gelu_tanh(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``F.gelu(input, approximate="tanh")``; the same as `gelu_fast`."""


@fills
def silu(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x / (1 + exp(-x))`` (``F.silu``)."""


@fills
def silu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``silu(a) b``, where ``a, b`` are the halves of `input` (…, 2d)."""


@fills
def mul_and_silu(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``a silu(b)``, where ``a, b`` are the halves of `input` (…, 2d)."""


@fills
def gelu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``gelu(a) b``, where ``a, b`` are the halves of `input` (…, 2d)."""


@fills
def gelu_tanh_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``gelu_tanh(a) b``, ``a, b`` being the halves of `input` (…, 2d)."""


def fatrelu_and_mul(out: torch.Tensor, input: torch.Tensor, threshold: float = 0.0) -> None:
    """Fill `out` (…, d) with ``(a if a > threshold else 0) b`` for the halves of `input` (…, 2d).

    The threshold is rounded to float32; a NaN in ``a`` stays NaN.
    """
    _fill_fatrelu_and_mul(out, input, threshold)
