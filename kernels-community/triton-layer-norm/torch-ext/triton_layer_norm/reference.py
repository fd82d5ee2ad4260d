"""What the functions of this kernel compute, in plain torch.

It serves the CPU, the dtypes without a Triton kernel and the tests. Arithmetic is in
float32, or in float64 for float64 inputs; each result is rounded once.
"""

from __future__ import annotations

import torch

__all__ = ["add_norm", "norm", "norm_backward"]


def norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    is_rms: bool,
) -> torch.Tensor:
    """Normalise the rows of `x`: Ba et al., "Layer normalization", 2016, or with `is_rms`

    Zhang and Sennrich, "Root mean square layer normalization", 2019.
    """
    return _norm(_widen(x), weight, bias, eps, is_rms).to(x.dtype)


def add_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    *,
    is_rms: bool,
    sum_dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm of ``x + residual``, which is not rounded before, and the sum itself."""
    h = _widen(x) + _widen(residual)
    return _norm(h, weight, bias, eps, is_rms).to(x.dtype), h.to(sum_dtype)


def norm_backward(
    h: torch.Tensor,
    weight: torch.Tensor | None,
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
    eps: float,
    *,
    is_rms: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of `h`, which was normalised, of the weight and of the bias.

    With x̂ the normalised row, s its scale and g = dy * weight:
    ``dh = s (g - x̂ mean(g x̂) - mean(g)) + dsum``, without the last mean for RMSNorm.
    The last two are in the dtype of the arithmetic.
    """
    normal, scale = _normalize(_widen(h), eps, is_rms)
    dy = _widen(dy)
    g = dy if weight is None else dy * _widen(weight)
    dh = g - normal * (g * normal).mean(-1, keepdim=True)
    if not is_rms:
        dh = dh - g.mean(-1, keepdim=True)
    dh = dh * scale
    if dsum is not None:
        dh = dh + _widen(dsum)
    leading = tuple(range(dy.dim() - 1))
    if not leading:
        return dh.to(h.dtype), dy * normal, dy.clone()
    return dh.to(h.dtype), (dy * normal).sum(leading), dy.sum(leading)


def _widen(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _normalize(h: torch.Tensor, eps: float, is_rms: bool) -> tuple[torch.Tensor, torch.Tensor]:
    if not is_rms:
        h = h - h.mean(-1, keepdim=True)
    scale = torch.rsqrt(h.square().mean(-1, keepdim=True) + eps)
    return h * scale, scale


def _norm(
    h: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    is_rms: bool,
) -> torch.Tensor:
    y, _ = _normalize(h, eps, is_rms)
    if weight is not None:
        y = y * _widen(weight)
    if bias is not None:
        y = y + _widen(bias)
    return y
