"""Whether a function computes what its reference does: sizes, layouts, zeros, memory left unwritten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import count_untouched, find_difference
from kernel_builder.gate.outcome import Outcome, Outcomes, Refused, fault
from kernel_builder.gate.trial import (
    Refusal,
    call,
    expected,
    make_inputs,
    tensors_of,
    unusual_sizes,
    usual_sizes,
)

_MAY_REFUSE = "compute it, or raise a ValueError that says what is expected"


def check_values(case: Case) -> Outcomes:
    """Compare with the reference at usual sizes, for every dtype; nothing may be refused."""
    for dtype in case.tolerance:
        inputs = make_inputs(case, dtype, usual_sizes(case))
        exact = expected(case, inputs)
        result = call(case, inputs)
        if isinstance(result, Refusal):
            yield fault(
                "values",
                case.name,
                f"{dtype}: it refuses usual inputs: {result.message}",
                "correct inputs() and sizes of the case, or the kernel",
            )
            continue
        said = find_difference(result, exact, case.tolerance[dtype])
        if said is not None:
            yield fault("values", case.name, f"{dtype}: {said}", "correct the kernel")
        for at, (used, fresh) in enumerate(
            zip(inputs, make_inputs(case, dtype, usual_sizes(case)), strict=True)
        ):
            if isinstance(used, torch.Tensor) and find_difference(used, fresh, 0) is not None:
                yield fault(
                    "inputs",
                    case.name,
                    f"{dtype}: the call changes input {at}",
                    "write to outputs alone; where that is what it is for, let the case work on a "
                    "copy and return it",
                )


def check_unwritten(case: Case) -> Outcomes:
    """Find elements of the result that nobody wrote; memory holds a pattern before the call."""
    before = torch.are_deterministic_algorithms_enabled()
    # Lets torch fill what it allocates.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        for dtype in case.tolerance:
            for sizes in (usual_sizes(case), *unusual_sizes(case)):
                inputs = make_inputs(case, dtype, sizes)
                exact = expected(case, inputs)
                result = call(case, inputs)
                if isinstance(result, Refusal):
                    continue
                count = count_untouched(result, exact)
                if count:
                    yield fault(
                        "unwritten",
                        case.name,
                        f"{dtype}, {_show(sizes)}: {count} elements of the result still hold what "
                        "was in memory before the call",
                        "write every element, the last ones too",
                    )
                    return
    finally:
        torch.use_deterministic_algorithms(before)


def check_sizes(case: Case) -> Outcomes:
    """Try empty, single and odd sizes."""
    for dtype in case.tolerance:
        for sizes in unusual_sizes(case):
            inputs = make_inputs(case, dtype, sizes)
            outcome = _try(case, "sizes", f"{dtype}, {_show(sizes)}", inputs, dtype)
            if outcome is not None:
                yield outcome


def check_layouts(case: Case) -> Outcomes:
    """Try inputs whose elements do not lie side by side, or begin in the middle of memory."""
    for dtype in case.tolerance:
        inputs = make_inputs(case, dtype, usual_sizes(case))
        for what, changed in _layouts(inputs):
            outcome = _try(case, "layouts", f"{dtype}, {what}", changed, dtype)
            if outcome is not None:
                yield outcome


def check_zeros(case: Case) -> Outcomes:
    """Try zeros for each floating input alone and for all: a division by a scale of zero gives NaN."""
    for dtype in case.tolerance:
        inputs = make_inputs(case, dtype, usual_sizes(case))
        floating = [at for at, each in enumerate(inputs) if _is_floating(each)]
        for zeroed in [*([at] for at in floating), *([floating] if len(floating) > 1 else [])]:
            changed = [
                torch.zeros_like(each) if at in zeroed else each for at, each in enumerate(inputs)
            ]
            what = f"{dtype}, zeros for input {' and '.join(map(str, zeroed))}"
            exact = expected(case, changed)
            result = call(case, changed)
            if isinstance(result, Refusal):
                yield Refused(message=f"{what}: {result.message}")
                continue
            bad = sum(_count_not_finite(each) for each in tensors_of(result))
            if bad:
                yield fault(
                    "zeros",
                    case.name,
                    f"{what}: {bad} elements of the result are NaN or infinite",
                    "treat a scale, norm or sum of zero on its own, or add an epsilon",
                )
                continue
            said = find_difference(result, exact, case.tolerance[dtype])
            if said is not None:
                yield fault("zeros", case.name, f"{what}: {said}", "correct the kernel")


def _try(case: Case, rule: str, what: str, inputs: Sequence[Any], dtype: Any) -> Outcome | None:
    """Call with unusual inputs, which may be refused by ValueError and by nothing else."""
    exact = expected(case, inputs)
    try:
        result = call(case, inputs)
    except Exception as err:  # noqa: BLE001  (whatever a kernel raises is what is to be told)
        said = " ".join(f"{type(err).__name__}: {err}".split())[:300]
        return fault(rule, case.name, f"{what}: it raises {said}", _MAY_REFUSE)
    if isinstance(result, Refusal):
        return Refused(message=f"{what}: {result.message}")
    difference = find_difference(result, exact, case.tolerance[dtype])
    return (
        None if difference is None else fault(rule, case.name, f"{what}: {difference}", _MAY_REFUSE)
    )


def _layouts(inputs: Sequence[Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the same values in other layouts, one input changed at a time."""
    for at, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
            continue
        for what, changed in (
            ("every second element of memory", _spread(tensor)),
            ("with its dimensions turned in memory", _turn(tensor)),
            ("from the second element of memory on", _shift(tensor)),
        ):
            yield f"input {at} {what}", (*inputs[:at], changed, *inputs[at + 1 :])


def _spread(tensor: Any) -> Any:
    wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
    return wide[..., ::2].copy_(tensor)


def _turn(tensor: Any) -> Any:
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def _shift(tensor: Any) -> Any:
    flat = tensor.new_zeros(tensor.numel() + 1)
    return flat[1:].view(tensor.shape).copy_(tensor)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _count_not_finite(tensor: Any) -> int:
    return int((~tensor.double().isfinite()).sum()) if tensor.is_floating_point() else 0


def _show(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={count}" for name, count in sizes.items())
