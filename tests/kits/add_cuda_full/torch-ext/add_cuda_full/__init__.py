"""Adds one to each element, with torch's full interface for CUDA."""

from ._ops import ops

add_one = ops.add_one

__all__ = ["add_one"]
