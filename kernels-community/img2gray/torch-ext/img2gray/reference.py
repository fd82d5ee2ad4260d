"""What `img2gray` computes, in plain torch."""

from __future__ import annotations

import torch

__all__ = ["img2gray"]

# Numerators for red, green and blue, and their common denominator; in the order of the ops' numbers.
WEIGHTS = {
    "default": ((21, 72, 7), 100),
    "bt601": ((299, 587, 114), 1000),  # ITU-R BT.601, luma
    "bt709": ((2126, 7152, 722), 10000),  # ITU-R BT.709, luma
}


def img2gray(image: torch.Tensor, weights: str = "default") -> torch.Tensor:
    """Grey of an image (..., 3): exact for uint8, rounded step by step for floating point."""
    numerators, denominator = WEIGHTS[weights]
    if image.dtype == torch.uint8:
        red, green, blue = image.long().unbind(-1)
        total = numerators[0] * red + numerators[1] * green + numerators[2] * blue
        return (total // denominator).to(torch.uint8)
    wide = image if image.dtype == torch.float64 else image.float()
    red, green, blue = wide.unbind(-1)
    wr, wg, wb = (numerator / denominator for numerator in numerators)
    return (wr * red + wg * green + wb * blue).to(image.dtype)
