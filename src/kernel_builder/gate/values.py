"""Whether a function computes what its reference does: modes, sizes, zeros, memory left unwritten."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import count_untouched, find_difference
from kernel_builder.gate.outcome import Outcomes, Refused, fault, say_error
from kernel_builder.gate.trial import (
    Refusal,
    call,
    expected,
    is_computed_with,
    make_inputs,
    tensors_of,
    unusual_sizes,
    usual_sizes,
)

_MODES: tuple[tuple[str, Callable[[], AbstractContextManager[object]]], ...] = (
    ("", nullcontext),
    (" under torch.no_grad()", torch.no_grad),
    (" under torch.inference_mode()", torch.inference_mode),
)
_MAY_REFUSE = "compute it, or raise a ValueError that says what is expected"


def check_values(case: Case) -> Outcomes:
    """Compare with the reference at usual sizes, for every dtype; nothing may be refused.

    A kernel may take another path where torch records nothing, so that is tried, too.
    """
    for dtype in case.tolerance:
        exact = expected(case, make_inputs(case, dtype, usual_sizes(case)))
        for where, mode in _MODES:
            inputs = make_inputs(case, dtype, usual_sizes(case))
            with mode():
                result = call(case, inputs)
            if isinstance(result, Refusal):
                yield fault(
                    "values",
                    case.name,
                    f"{dtype}{where}: it refuses usual inputs: {result.message}",
                    "correct inputs() and sizes of the case, or the kernel",
                )
                break
            said = find_difference(result, exact, case.tolerance[dtype])
            if said is not None:
                yield fault("values", case.name, f"{dtype}{where}: {said}", "correct the kernel")
                break
            fresh = make_inputs(case, dtype, usual_sizes(case))
            yield from _find_changed(case, f"{dtype}{where}", inputs, fresh)


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
            yield from try_unusual(case, "sizes", f"{dtype}, {_show(sizes)}", inputs, dtype)


def check_zeros(case: Case) -> Outcomes:
    """Try zeros, and numbers close to zero, for each floating input alone and for all.

    A division by a scale of zero gives NaN; so does zero times the inverse of a scale that is too
    small to have one.
    """
    for dtype in case.tolerance:
        inputs = make_inputs(case, dtype, usual_sizes(case))
        floating = [at for at, each in enumerate(inputs) if _is_floating(each)]
        for chosen in [*([at] for at in floating), *([floating] if len(floating) > 1 else [])]:
            yield from _try_zeros(case, dtype, inputs, chosen)
            yield from _try_tiny(case, dtype, inputs, chosen)


def _try_zeros(case: Case, dtype: Any, inputs: Sequence[Any], chosen: Sequence[int]) -> Outcomes:
    changed = [torch.zeros_like(each) if at in chosen else each for at, each in enumerate(inputs)]
    what = f"{dtype}, zeros for input {' and '.join(map(str, chosen))}"
    exact = expected(case, changed)
    result = call(case, changed)
    if isinstance(result, Refusal):
        yield Refused(message=f"{what}: {result.message}")
        return
    bad = sum(_count_not_finite(each) for each in tensors_of(result))
    if bad:
        yield fault(
            "zeros",
            case.name,
            f"{what}: {bad} elements of the result are NaN or infinite",
            "treat a scale, norm or sum of zero on its own, or add an epsilon",
        )
        return
    said = find_difference(result, exact, case.tolerance[dtype])
    if said is not None:
        yield fault("zeros", case.name, f"{what}: {said}", "correct the kernel")


def _try_tiny(case: Case, dtype: Any, inputs: Sequence[Any], chosen: Sequence[int]) -> Outcomes:
    """Try numbers without an inverse in their dtype, beside other inputs that begin with a zero.

    Another result than the reference's is no fault here, since float64 does not lose such numbers;
    NaN is one where the reference has a number that the dtype of the result can hold.
    """
    changed = [
        _make_tiny(each) if at in chosen else _begin_with_zero(each)
        for at, each in enumerate(inputs)
    ]
    what = f"{dtype}, denormal numbers for input {' and '.join(map(str, chosen))}"
    exact = expected(case, changed)
    result = call(case, changed)
    if isinstance(result, Refusal):
        yield Refused(message=f"{what}: {result.message}")
        return
    bad = sum(
        int((ours.isnan() & (theirs.abs() <= torch.finfo(ours.dtype).max)).sum())
        for ours, theirs in zip(tensors_of(result), tensors_of(exact), strict=False)
        if is_computed_with(ours) and ours.shape == theirs.shape
    )
    if bad:
        yield fault(
            "zeros",
            case.name,
            f"{what}: NaN at {bad} places of the result, where the reference has none",
            "divide by the scale itself, since its inverse may be infinite, or give it a least value",
        )


def try_unusual(
    case: Case,
    rule: str,
    what: str,
    inputs: Sequence[Any],
    dtype: Any,
    *,
    fix: str = _MAY_REFUSE,
) -> Outcomes:
    """Call with unusual inputs, which may be refused by ValueError and by nothing else."""
    exact = expected(case, inputs)
    before = [_keep(each) for each in inputs]
    try:
        result = call(case, inputs)
    except Exception as err:  # noqa: BLE001  (whatever a kernel raises is what is to be told)
        said = say_error(err)
        yield fault(rule, case.name, f"{what}: it raises {said}", _MAY_REFUSE)
        return
    if isinstance(result, Refusal):
        yield Refused(message=f"{what}: {result.message}")
        return
    difference = find_difference(result, exact, case.tolerance[dtype])
    if difference is not None:
        yield fault(rule, case.name, f"{what}: {difference}", fix)
        return
    yield from _find_changed(case, what, inputs, before)


def _find_changed(case: Case, what: str, used: Sequence[Any], before: Sequence[Any]) -> Outcomes:
    """Note each input that a call changed."""
    for at, (one, other) in enumerate(zip(used, before, strict=True)):
        if isinstance(one, torch.Tensor) and find_difference(one, other, 0) is not None:
            yield fault(
                "inputs",
                case.name,
                f"{what}: the call changes input {at}",
                "write to outputs alone; where that is what it is for, let the case work on a "
                "copy and return it",
            )


def _keep(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone(memory_format=torch.contiguous_format)


def _make_tiny(tensor: Any) -> Any:
    """Return the signs of a tensor with the smallest number that its dtype has."""
    if not is_computed_with(tensor):
        return tensor
    return torch.sign(tensor) * torch.finfo(tensor.dtype).smallest_normal / 8


def _begin_with_zero(value: Any) -> Any:
    if not is_computed_with(value) or value.numel() == 0:
        return value
    begun = value.clone(memory_format=torch.contiguous_format)
    begun[(0,) * begun.dim()] = 0
    return begun


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _count_not_finite(tensor: Any) -> int:
    return int((~tensor.double().isfinite()).sum()) if tensor.is_floating_point() else 0


def _show(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={count}" for name, count in sizes.items())
