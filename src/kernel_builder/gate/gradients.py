"""Whether training goes through a function, and whether its gradients are those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import find_difference
from kernel_builder.gate.outcome import Outcomes, Unproved, fault, say_error
from kernel_builder.gate.trial import (
    is_computed_with,
    make_inputs,
    poison,
    tensors_of,
    turn,
    usual_sizes,
    widen,
)


def check_gradients(case: Case) -> Outcomes:
    """Compare gradients with the reference's, which are proved by differences in float64."""
    if not case.differentiable:
        yield from _look_without(case)
        return
    tolerances = gradient_tolerances(case)
    if not tolerances:
        yield fault(
            "gradients",
            case.name,
            "none of its dtypes can have a gradient",
            "write differentiable=False in the case",
        )
        return
    yield from _prove_reference(case, next(iter(tolerances)))
    for dtype, tolerance in tolerances.items():
        yield from _compare(case, dtype, tolerance)
    if torch.float64 in tolerances:
        inputs = record(make_inputs(case, torch.float64, case.sizes))
        yield from _prove(case, "the function", as_function(case), inputs)


def gradient_tolerances(case: Case) -> dict[Any, float]:
    """Return the tolerance of gradients for each dtype of a case that can have one."""
    tolerances = case.gradient_tolerance or case.tolerance
    return {
        dtype: tolerance
        for dtype, tolerance in tolerances.items()
        if dtype.is_floating_point and dtype.itemsize > 1
    }


def _look_without(case: Case) -> Outcomes:
    """Say where a call of training goes through a function that has no backward."""
    for dtype in case.tolerance:
        inputs = record(make_inputs(case, dtype, usual_sizes(case)))
        if not any(is_computed_with(each) for each in inputs):
            continue
        try:
            results = tensors_of(as_function(case)(*inputs))
        except (RuntimeError, ValueError, NotImplementedError):
            continue
        if not any(each.requires_grad for each in results):
            yield Unproved(
                message="it has no backward, and says nothing where its input requires a gradient"
            )
            return


def _compare(case: Case, dtype: Any, tolerance: float) -> Outcomes:
    """Compare values and gradients where training needs some or all, for gradients in some layouts."""
    plain = [widen(each) for each in make_inputs(case, dtype, usual_sizes(case))]
    where = [at for at, each in enumerate(plain) if is_computed_with(each)]
    alone = [[at] for at in where] if len(where) > 1 else []
    told: set[int] = set()
    for needing in (where, *alone):
        wide = record(plain, needing)
        exact = tensors_of(case.reference(*wide))
        if not any(each.requires_grad for each in exact):
            continue
        what = f"{dtype}" if needing == where else f"{dtype}, input {needing[0]} alone needs one"
        for how, arrange in _LAYOUTS:
            inputs = record(make_inputs(case, dtype, usual_sizes(case)), needing)
            weights = [arrange(_random_like(each)) for each in exact]
            try:
                results = tensors_of(as_function(case)(*inputs))
                off = _find_wrong_result(case, results, exact, dtype)
                ours = () if off else differentiate(results, inputs, weights)
            except Exception as err:  # noqa: BLE001  (whatever a backward raises is to be told)
                said = say_error(err)
                off = (f"the gradient{how}: it raises {said}", "correct the backward")
            if off is not None:
                yield fault("gradients", case.name, f"{what}: {off[0]}", off[1])
                return
            theirs = differentiate(exact, wide, weights)
            for at, found, right in zip(needing, ours, theirs, strict=True):
                said_off = _find_off(found, right, tolerance)
                if said_off is not None and at not in told:
                    told.add(at)
                    said = f"{what}: the gradient of input {at}{how}: {said_off}"
                    yield fault("gradients", case.name, said, "correct the backward")


def _find_wrong_result(
    case: Case, results: Sequence[Any], exact: Sequence[Any], dtype: Any
) -> tuple[str, str] | None:
    """Say what is wrong with results that autograd follows, and what to do; None: nothing."""
    pairs = zip(results, exact, strict=False)
    if any(right.requires_grad and not found.requires_grad for found, right in pairs):
        return (
            "its result requires no gradient although its input does, so training would go on "
            "without it, silently",
            "register a backward (torch.library.register_autograd), or write "
            "differentiable=False in the case",
        )
    tolerance = case.tolerance if dtype in case.tolerance else gradient_tolerances(case)
    off = find_difference(results, exact, tolerance[dtype])
    if off is None:
        return None
    return f"its result, where a gradient is recorded: {off}", "compute the same with and without"


def _find_off(found: Any, right: Any, tolerance: float) -> str | None:
    if right is None:
        return None
    if found is None:
        return "it has none, and the reference has one"
    return find_difference(found, right, tolerance)


def _random_like(tensor: Any) -> Any:
    return torch.randn_like(tensor, dtype=torch.float64, memory_format=torch.contiguous_format)


def _expand(weight: Any) -> Any:
    """Return one number for all elements, as the gradient of a sum is."""
    return weight.flatten()[:1].reshape(()).expand(weight.shape) if weight.numel() else weight


# How gradients of results lie in memory; torch hands them to a backward as they are.
_LAYOUTS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("", lambda weight: weight),
    (" of a sum, whose elements are one in memory", _expand),
    (", where that of the result has its dimensions turned in memory", turn),
)


def differentiate(results: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Return the gradients of those inputs that need one, for given gradients of the results."""
    wanted = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    total = [each for each in results if each.requires_grad]
    along = [
        _convert(weight, each)
        for each, weight in zip(results, weights, strict=True)
        if each.requires_grad
    ]
    return torch.autograd.grad(total, wanted, along, allow_unused=True, retain_graph=True)


def _convert(weight: Any, result: Any) -> Any:
    """Return a gradient in the dtype and on the device of its result, in its own layout."""
    if 0 in weight.stride() and weight.numel():
        one = weight[(0,) * weight.dim()].to(result.device, result.dtype)
        return one.expand(weight.shape)
    return weight.to(result.device, result.dtype)


def _prove_reference(case: Case, dtype: Any) -> Outcomes:
    inputs = record([widen(each) for each in make_inputs(case, dtype, case.sizes)])
    yield from _prove(case, "the reference", case.reference, inputs)


def _prove(case: Case, what: str, function: Any, inputs: Sequence[Any]) -> Outcomes:
    try:
        torch.autograd.gradcheck(function, tuple(inputs))
    except Exception as err:  # noqa: BLE001  (gradcheck raises whatever the function does)
        said = " ".join(str(err).split())[:300]
        yield fault(
            "gradients",
            case.name,
            f"{what} does not pass torch.autograd.gradcheck in float64: {said}",
            f"correct {what}",
        )


def as_function(case: Case, function: Callable[..., Any] | None = None) -> Any:
    """Return the function of a case, or another in its place, as one that returns its result."""
    called = case.function if function is None else function

    def run(*inputs: Any) -> Any:
        if case.out is None:
            return called(*inputs)
        out = poison(case.out(*(_detach(each) for each in inputs)))
        called(out, *inputs)
        return out

    return run


def record(inputs: Sequence[Any], needing: Sequence[int] | None = None) -> list[Any]:
    """Return copies of inputs of which all, or those at some places, need a gradient."""
    return [
        each.detach().clone().requires_grad_()
        if is_computed_with(each) and (needing is None or at in needing)
        else each
        for at, each in enumerate(inputs)
    ]


def _detach(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
