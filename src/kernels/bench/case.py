"""What is timed: one call of a kernel, what it is compared with, and how right it must be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
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


def find_faults(case: Any) -> Iterator[str]:
    """Yield what has to be put right of a :class:`Case` before it can be timed and written down."""
    import torch

    if not isinstance(case.op, str) or not case.op or "." in case.op:
        # A row calls it owner/name.op.
        yield f"op: expected a name without a dot, found {case.op!r}"
    if not isinstance(case.shape, tuple) or not all(
        isinstance(size, int) and size >= 0 for size in case.shape
    ):
        yield f"shape: expected a tuple of whole numbers, found {case.shape!r}"
    if not isinstance(getattr(torch, str(case.dtype), None), torch.dtype):
        yield f"dtype: expected the name of one, such as 'float16', found {case.dtype!r}"
    for name in ("tolerance", "moved_bytes", "flops"):
        value = getattr(case, name)
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            yield f"{name}: expected a number of zero or more, found {value!r}"
    if case.out is not None and not isinstance(case.out, torch.Tensor):
        yield f"out: expected a tensor or None, found {type(case.out).__name__}"
    calls = {"ours": case.ours, "expected": case.expected}
    for kind in ("peers", "references"):
        value = getattr(case, kind)
        if isinstance(value, Mapping):
            calls |= {f"{kind}[{name!r}]": call for name, call in value.items()}
        else:
            yield f"{kind}: expected functions by name, found {value!r}"
    for name, call in calls.items():
        if not callable(call):
            yield f"{name}: expected a function without arguments, found {type(call).__name__}"


def largest_error(found: Any, expected: Any) -> float:
    """The largest |found - expected| / (1 + |expected|); infinite where shapes or NaNs differ.

    Equal infinities count as no error. Computed in pieces of 2^24 elements, in float64, or in complex128
    where one of the two is complex. Whole numbers are compared exactly: where float64 cannot tell two
    apart, they are 1 apart.
    """
    import torch

    if found.shape != expected.shape:
        return float("inf")
    wide = torch.complex128 if found.is_complex() or expected.is_complex() else torch.float64
    worst = 0.0
    step = 1 << 24
    found, expected = found.detach().reshape(-1), expected.detach().reshape(-1)
    for start in range(0, found.numel(), step):
        given, wanted = found[start : start + step], expected[start : start + step]
        a, b = given.to(wide), wanted.to(wide)
        size = 1 + b.abs()
        error = (a - b).abs() / size
        error = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(error), error)
        error = torch.where(error.isnan(), torch.full_like(error, float("inf")), error)
        if _is_whole(given) and _is_whole(wanted):
            error = torch.where((error == 0) & _differ(given, wanted), 1 / size, error)
        worst = max(worst, float(error.max()))
    return worst


def _is_whole(tensor: Any) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def _differ(a: Any, b: Any) -> Any:
    """Say of each pair of whole numbers whether they differ, whatever their types."""
    import torch

    left, right = a.to(torch.int64), b.to(torch.int64)
    differ = left != right
    if (a.dtype == torch.uint64) != (b.dtype == torch.uint64):
        differ |= left < 0  # equal bits of a negative number and of one beyond 2^63
    return differ


def poison(tensor: Any) -> None:
    """Overwrite a tensor with values that no result has, so that gaps in the output show."""
    tensor.fill_(77 if _is_whole(tensor) else float("nan"))
