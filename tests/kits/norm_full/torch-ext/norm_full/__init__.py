"""A norm in torch's full interface, as kernels of the years before the stable one are written."""

from ._ops import ops

__all__ = ["ops"]
