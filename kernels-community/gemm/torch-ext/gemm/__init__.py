"""Products of FP8 matrices whose scales come in blocks of 128, in bfloat16.

`gemm` takes K x M and K x N, `gemm_nt` takes M x K and N x K; see their docstrings for shapes,
dtypes and errors, and :mod:`.reference` for the formula. There is no backward.
"""

from __future__ import annotations

from . import reference as reference  # for tests and benchmarks, not part of the interface
from ._ops import ops as ops
from .functions import gemm, gemm_nt

__all__ = ["gemm", "gemm_nt"]
