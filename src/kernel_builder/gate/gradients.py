"""Whether training goes through a function, and whether its gradients are those of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import find_difference
from kernel_builder.gate.outcome import Outcomes, Unproved, fault
from kernel_builder.gate.trial import make_inputs, poison, tensors_of, usual_sizes, widen


def check_gradients(case: Case) -> Outcomes:
    """Compare gradients with the reference's, which are proved by differences in float64."""
    if not case.differentiable:
        yield from _look_without(case)
        return
    tolerances = case.gradient_tolerance or case.tolerance
    dtypes = [dtype for dtype in tolerances if dtype.is_floating_point and dtype.itemsize > 1]
    if not dtypes:
        yield fault(
            "gradients",
            case.name,
            "none of its dtypes can have a gradient",
            "write differentiable=False in the case",
        )
        return
    yield from _prove_reference(case, dtypes[0])
    for dtype in dtypes:
        yield from _compare(case, dtype, tolerances[dtype])
    if torch.float64 in dtypes:
        inputs = _record(make_inputs(case, torch.float64, case.sizes))
        yield from _prove(case, "the function", _as_function(case), inputs)


def _look_without(case: Case) -> Outcomes:
    """Say where a call of training goes through a function that has no backward."""
    for dtype in case.tolerance:
        inputs = _record(make_inputs(case, dtype, usual_sizes(case)))
        if not any(_may_have_gradient(each) for each in inputs):
            continue
        try:
            results = tensors_of(_as_function(case)(*inputs))
        except (RuntimeError, ValueError, NotImplementedError):
            continue
        if not any(each.requires_grad for each in results):
            yield Unproved(
                message="it has no backward, and says nothing where its input requires a gradient"
            )
            return


def _compare(case: Case, dtype: Any, tolerance: float) -> Outcomes:
    inputs = _record(make_inputs(case, dtype, usual_sizes(case)))
    results = tensors_of(_as_function(case)(*inputs))
    if not all(each.requires_grad for each in results if each.is_floating_point()):
        yield fault(
            "gradients",
            case.name,
            f"{dtype}: its result requires no gradient although its input does, so training would "
            "go on without it, silently",
            "register a backward (torch.library.register_autograd), or write "
            "differentiable=False in the case",
        )
        return
    wide = _record([widen(each) for each in make_inputs(case, dtype, usual_sizes(case))])
    exact = tensors_of(case.reference(*wide))
    weights = [torch.randn_like(each, dtype=torch.float64) for each in exact]
    ours = _differentiate(results, inputs, weights)
    theirs = _differentiate(exact, wide, weights)
    for at, (found, right) in enumerate(zip(ours, theirs, strict=True)):
        if right is None:
            continue
        if found is None:
            said: str | None = "it has none, and the reference has one"
        else:
            said = find_difference(found, right, tolerance)
        if said is not None:
            yield fault(
                "gradients",
                case.name,
                f"{dtype}: the gradient of differentiable input {at}: {said}",
                "correct the backward",
            )


def _differentiate(results: Sequence[Any], inputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    wanted = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    total = [each for each in results if each.requires_grad]
    along = [
        weight.to(each.dtype)
        for each, weight in zip(results, weights, strict=True)
        if each.requires_grad
    ]
    return torch.autograd.grad(total, wanted, along, allow_unused=True)


def _prove_reference(case: Case, dtype: Any) -> Outcomes:
    inputs = _record([widen(each) for each in make_inputs(case, dtype, case.sizes)])
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


def _as_function(case: Case) -> Any:
    def run(*inputs: Any) -> Any:
        if case.out is None:
            return case.function(*inputs)
        out = poison(case.out(*(_detach(each) for each in inputs)))
        case.function(out, *inputs)
        return out

    return run


def _record(inputs: Sequence[Any]) -> list[Any]:
    return [
        each.detach().clone().requires_grad_() if _may_have_gradient(each) else each
        for each in inputs
    ]


def _may_have_gradient(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor) and value.is_floating_point() and value.element_size() > 1
    )


def _detach(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
