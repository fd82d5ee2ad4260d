"""Exercises a newer C++ library."""

import torch

from ._ops import ops


def modern(value: float) -> float:
    """Return ``123.5 + value**2 + value``."""
    out = torch.zeros(1, dtype=torch.float64)
    ops.modern(out, torch.tensor([value], dtype=torch.float64))
    return out.item()


__all__ = ["modern"]
