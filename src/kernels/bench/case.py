"""What is timed: one call of a kernel, what it is compared with, and how right it must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Call = Callable[[], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One call of a kernel's op, on given tensors.

    Attributes:
        op: the op, as the kernel names it.
        shape: of the main input, as a reader would write it down.
        dtype: of the main input, without ``torch.``.
        ours: the call; returns the result, a tensor, unless `out` has it.
        expected: computes what the result should be, in a wider type.
        tolerance: the largest error that counts as right: |found - expected| / (1 + |expected|).
        peers: other ways to the same result. They are checked as well, to ten tolerances, since
            they may round in between.
        references: calls that are no way to this result, such as a copy of the same size.
        moved_bytes: the fewest bytes that must be read and written: each input and output once.
        flops: the floating-point operations that must be done; 0 where memory alone counts.
        out: where `ours` writes, if that is not a new tensor; overwritten before the check.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    ours: Call
    expected: Call
    tolerance: float
    peers: Mapping[str, Call] = field(default_factory=dict)
    references: Mapping[str, Call] = field(default_factory=dict)
    moved_bytes: int = 0
    flops: int = 0
    out: Any = None

    @property
    def label(self) -> str:
        """The case in one line, as reports and ``--only`` spell it."""
        return f"{self.op} {'x'.join(map(str, self.shape))} {self.dtype}"


def largest_error(found: Any, expected: Any) -> float:
    """The largest |found - expected| / (1 + |expected|); infinite where shapes or NaNs differ.

    Equal infinities count as no error. Computed in float64, in pieces of 2^24 elements.
    """
    import torch

    if found.shape != expected.shape:
        return float("inf")
    worst = 0.0
    step = 1 << 24
    found, expected = found.detach().reshape(-1), expected.detach().reshape(-1)
    for start in range(0, found.numel(), step):
        a = found[start : start + step].double()
        b = expected[start : start + step].double()
        error = (a - b).abs() / (1 + b.abs())
        error = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(error), error)
        error = torch.where(error.isnan(), torch.full_like(error, float("inf")), error)
        worst = max(worst, float(error.max()))
    return worst


def poison(tensor: Any) -> None:
    """Overwrite a tensor with values that no result has, so that gaps in the output show."""
    tensor.fill_(float("nan") if tensor.is_floating_point() else 77)
