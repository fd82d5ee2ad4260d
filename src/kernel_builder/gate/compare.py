"""How far a result is from what it should be, said in one sentence."""

from __future__ import annotations

from typing import Any

import torch

from kernel_builder.gate.fresh_memory import FRESH_BYTES
from kernel_builder.gate.trial import tensors_of


def find_difference(found: Any, exact: Any, tolerance: float) -> str | None:
    """Say where a result is not what it should be; None where it is.

    Args:
        found: a tensor or a tuple of them.
        exact: what they should be.
        tolerance: the largest ``|found - exact| / (1 + |exact|)``.
    """
    ours, theirs = tensors_of(found), tensors_of(exact)
    if len(ours) != len(theirs) or not ours:
        return f"it gives {len(ours)} tensors, and the reference {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        said = _compare(one, other, tolerance)
        if said is not None:
            return said
    return None


def _compare(found: Any, exact: Any, tolerance: float) -> str | None:
    if found.shape != exact.shape:
        return f"its shape is {tuple(found.shape)}, and the reference's {tuple(exact.shape)}"
    if found.numel() == 0:
        return None
    ours = found.detach().to(exact.device, torch.float64)
    theirs = exact.detach().double()
    unequal = (ours != theirs) & ~(ours.isnan() & theirs.isnan())
    # Where one side is not finite, only equality is close.
    finite = ours.isfinite() & theirs.isfinite()
    error = torch.where(finite, (ours - theirs).abs() / (1 + theirs.abs()), torch.inf)
    error = torch.where(unequal, error, torch.zeros_like(error))
    worst = int(error.argmax())
    largest = float(error.flatten()[worst])
    if largest <= tolerance:
        return None
    where = [int(each) for each in torch.unravel_index(torch.tensor(worst), error.shape)]
    wrong = int((error > tolerance).sum())
    return (
        f"{wrong} of {error.numel()} elements are off; at {where} it is "
        f"{float(ours.flatten()[worst]):g} and should be {float(theirs.flatten()[worst]):g} "
        f"(error {largest:.2g}, tolerance {tolerance:g})"
    )


def count_untouched(found: Any, exact: Any) -> int:
    """Count the wrong elements that hold what the gate left in memory before the call."""
    count = 0
    for one, other in zip(tensors_of(found), tensors_of(exact), strict=False):
        if one.shape != other.shape or one.numel() == 0:
            continue
        wrong = one.detach().double() != other.detach().double()
        if one.is_floating_point():
            wrong &= ~other.isnan()
        count += int((wrong & _is_untouched(one.detach())).sum())
    return count


def _is_untouched(found: Any) -> Any:
    """Say of each element whether it is NaN, the largest integer, or the bytes of fresh memory."""
    raw = found.contiguous().unsqueeze(-1).view(torch.uint8)
    left = torch.zeros(found.shape, dtype=torch.bool, device=found.device)
    for byte in FRESH_BYTES:
        left |= (raw == byte).all(-1)
    if found.is_floating_point():
        return left | found.double().isnan()
    if found.dtype is torch.bool:
        return left
    return left | (found == torch.iinfo(found.dtype).max)
