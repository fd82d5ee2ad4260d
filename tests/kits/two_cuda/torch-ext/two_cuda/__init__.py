"""Two components for CUDA in one library."""

from ._ops import ops

old_step = ops.old_step
new_step = ops.new_step

__all__ = ["new_step", "old_step"]
