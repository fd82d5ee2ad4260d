"""Whether a function takes its inputs however they lie in memory: strided, turned, repeated, far apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernel_builder.gate.case import Case
from kernel_builder.gate.memory import find_available, spread_rows
from kernel_builder.gate.outcome import Outcomes, Unproved
from kernel_builder.gate.trial import make_inputs, turn, usual_sizes
from kernel_builder.gate.values import try_unusual

# Offsets that an int cannot hold.
_FAR = 1 << 31
_FIX = "compute offsets in 64 bits (int64_t, tl.int64), or raise a ValueError"


def check_layouts(case: Case) -> Outcomes:
    """Try inputs whose elements do not lie side by side, or begin in the middle of memory."""
    for dtype in case.tolerance:
        inputs = make_inputs(case, dtype, usual_sizes(case))
        for what, changed in _layouts(inputs):
            yield from try_unusual(case, "layouts", f"{dtype}, {what}", changed, dtype)


def check_far(case: Case) -> Outcomes:
    """Try few rows that lie more than 2^31 elements apart, so that strides alone are large."""
    dtype = min(case.tolerance, key=lambda each: int(each.itemsize))
    inputs = make_inputs(case, dtype, usual_sizes(case))
    for at, tensor in enumerate(inputs):
        if not _has_tensor_shape(tensor) or tensor.shape[0] < 2 or tensor.numel() == 0:
            continue
        step = _FAR // (tensor.shape[0] - 1) + 64
        need = 2 * _FAR * tensor.element_size()
        if tensor.is_cuda and need > find_available(tensor.device):
            yield Unproved(message=f"rows far apart: {need >> 30} GiB of memory are not free here")
            return
        try:
            far = spread_rows(tensor, step)
        except OSError as err:
            yield Unproved(message=f"rows far apart: no such memory here ({err.strerror})")
            return
        what = f"{dtype}, input {at} with rows {step} elements apart"
        changed = (*inputs[:at], far, *inputs[at + 1 :])
        yield from try_unusual(case, "far", what, changed, dtype, fix=_FIX)


def _layouts(inputs: Sequence[Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the same values in other layouts, one input changed at a time."""
    for at, tensor in enumerate(inputs):
        if not _has_tensor_shape(tensor):
            continue
        layouts = [
            ("every second element of memory", _spread(tensor)),
            ("with its dimensions turned in memory", turn(tensor)),
            ("from the second element of memory on", _shift(tensor)),
        ]
        # Whole numbers in a row may be places of something, which have to differ.
        if tensor.dim() > 1 or tensor.is_floating_point():
            layouts.append(("expanded: all rows are one in memory", tensor[:1].expand_as(tensor)))
        for what, changed in layouts:
            yield f"input {at} {what}", (*inputs[:at], changed, *inputs[at + 1 :])


def _has_tensor_shape(value: Any) -> bool:
    return hasattr(value, "stride") and value.dim() > 0


def _spread(tensor: Any) -> Any:
    wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
    return wide[..., ::2].copy_(tensor)


def _shift(tensor: Any) -> Any:
    flat = tensor.new_zeros(tensor.numel() + 1)
    return flat[1:].view(tensor.shape).copy_(tensor)
