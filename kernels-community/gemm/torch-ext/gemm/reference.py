"""What the functions of this kernel compute, in plain torch and float64.

Tests compare with it; benchmarks call it to see that what they time is right.
"""

from __future__ import annotations

import torch

__all__ = ["gemm", "gemm_nt"]

_BLOCK = 128


def gemm_nt(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor
) -> torch.Tensor:
    """Return ``(a · a_scale) (b · b_scale)ᵀ`` as float64 of shape M x N; shapes as `gemm_nt`'s."""
    a_full = a.double() * a_scale.double().repeat_interleave(_BLOCK, 1)
    b_rows = b_scale.double().repeat_interleave(_BLOCK, 0)[: b.shape[0]]
    b_full = b.double() * b_rows.repeat_interleave(_BLOCK, 1)
    return a_full @ b_full.t()


def gemm(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor
) -> torch.Tensor:
    """Return ``(a · a_scale)ᵀ (b · b_scale)`` as float64 of shape M x N; shapes as `gemm`'s."""
    return gemm_nt(a.t(), b.t(), a_scale.t(), b_scale.t())
