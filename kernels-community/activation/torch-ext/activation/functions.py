"""The functions of this kernel: each checks its arguments and calls its op.

The layers use them too, so a mistake reads the same from both.
"""

# ruff: noqa: A002  (`input` is torch's own name for it)
from __future__ import annotations

import torch

from ._checks import check_gated, check_unary
from ._ops import add_op_namespace_prefix, ops

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


def gelu(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x Φ(x)``, Φ being the normal distribution function (``F.gelu``)."""
    check_unary("gelu", out, input)
    ops.gelu(out, input)


def gelu_fast(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x (1 + tanh(√(2/π) x (1 + 0.044715 x²))) / 2``."""
    check_unary("gelu_fast", out, input)
    ops.gelu_fast(out, input)


def gelu_new(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2``; the same as `gelu_fast`."""
    check_unary("gelu_new", out, input)
    ops.gelu_new(out, input)


def gelu_quick(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x / (1 + exp(-1.702 x))``."""
    check_unary("gelu_quick", out, input)
    ops.gelu_quick(out, input)


def gelu_tanh(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``F.gelu(input, approximate="tanh")``; the same as `gelu_fast`."""
    check_unary("gelu_tanh", out, input)
    ops.gelu_tanh(out, input)


def silu(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` with ``x / (1 + exp(-x))`` (``F.silu``)."""
    check_unary("silu", out, input)
    ops.silu(out, input)


def silu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``silu(a) b``, where ``a, b`` are the halves of `input` (…, 2d)."""
    check_gated("silu_and_mul", out, input)
    ops.silu_and_mul(out, input)


def mul_and_silu(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``a silu(b)``, where ``a, b`` are the halves of `input` (…, 2d)."""
    check_gated("mul_and_silu", out, input)
    ops.mul_and_silu(out, input)


def gelu_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``gelu(a) b``, where ``a, b`` are the halves of `input` (…, 2d)."""
    check_gated("gelu_and_mul", out, input)
    ops.gelu_and_mul(out, input)


def gelu_tanh_and_mul(out: torch.Tensor, input: torch.Tensor) -> None:
    """Fill `out` (…, d) with ``gelu_tanh(a) b``, ``a, b`` being the halves of `input` (…, 2d)."""
    check_gated("gelu_tanh_and_mul", out, input)
    ops.gelu_tanh_and_mul(out, input)


def fatrelu_and_mul(out: torch.Tensor, input: torch.Tensor, threshold: float = 0.0) -> None:
    """Fill `out` (…, d) with ``(a if a > threshold else 0) b`` for the halves of `input` (…, 2d).

    The threshold is rounded to float32; a NaN in ``a`` stays NaN.
    """
    check_gated("fatrelu_and_mul", out, input)
    ops.fatrelu_and_mul(out, input, threshold)


def _register_fakes() -> None:
    """Tell torch.compile that the ops only write into `out`, whose shape is already known."""

    def fill_out(*_arguments: object) -> None:
        return None

    for name in __all__:
        torch.library.register_fake(add_op_namespace_prefix(name), fill_out)


_register_fakes()
