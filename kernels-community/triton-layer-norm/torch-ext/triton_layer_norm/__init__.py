"""RMSNorm and LayerNorm over the last dimension, with a fused residual addition and a backward.

Everything is computed in float32 and rounded once to the dtype of the result. On a GPU
float32, bfloat16 and float16 run as Triton kernels; other dtypes, rows longer than
32768 and the CPU run the plain-torch formulas of :mod:`.reference`.

Raises:
    ValueError: shapes, dtypes or devices do not fit, or an option that is not supported.
"""

from __future__ import annotations

from . import layers
from . import reference as reference  # for tests and benchmarks, not part of the interface
from ._ops import ops as ops
from .functions import layer_norm_fn, rms_norm_fn, rms_norm_forward

__all__ = ["layer_norm_fn", "layers", "rms_norm_fn", "rms_norm_forward"]
