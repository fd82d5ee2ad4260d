"""Activation functions that write into a tensor of the caller.

Every function takes ``(out, input)``, fills `out` and returns None. `out` may be
`input` itself (or, for the ``_and_mul`` functions, one half of it), and must not
overlap it in any other way. Any strides are right; dense rows are fast, other
layouts cost a copy. float32, bfloat16 and float16 are computed in float32 and
rounded once. Formulas and accuracy are in the docstrings and in :mod:`.reference`;
NaN stays NaN. Where autograd records and `input` requires a gradient, it flows through
`out`, at the cost of a copy; the layers record without one.

Raises:
    ValueError: shapes, dtypes or devices of the two tensors do not fit.
"""

from __future__ import annotations

from . import gradients as gradients  # for tests, as the next
from . import layers
from . import reference as reference  # for tests and benchmarks, not part of the interface
from ._ops import ops as ops
from .functions import (
    fatrelu_and_mul,
    gelu,
    gelu_and_mul,
    gelu_fast,
    gelu_new,
    gelu_quick,
    gelu_tanh,
    gelu_tanh_and_mul,
    mul_and_silu,
    silu,
    silu_and_mul,
)

__all__ = [
    "fatrelu_and_mul",
    "gelu",
    "gelu_and_mul",
    "gelu_fast",
    "gelu_new",
    "gelu_quick",
    "gelu_tanh",
    "gelu_tanh_and_mul",
    "layers",
    "mul_and_silu",
    "silu",
    "silu_and_mul",
]
