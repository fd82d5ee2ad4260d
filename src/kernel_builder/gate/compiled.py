"""Whether a function does the same inside ``torch.compile(fullgraph=True)``, and its backward, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import find_difference
from kernel_builder.gate.gradients import as_function, differentiate, gradient_tolerances, record
from kernel_builder.gate.outcome import Outcomes, fault, say_error
from kernel_builder.gate.trial import Refusal, call, make_inputs, tensors_of, usual_sizes

# torch's own graph capture, fakes and functionalization, without a compiler of machine code.
BACKEND = "aot_eager"
# A size that differs from call to call becomes a symbol of the graph.
_OTHER_STEPS = (7, 11)


def check_compiled(case: Case) -> Outcomes:
    """Compare eager with compiled: for every dtype, called again, at other sizes, and in training."""
    if not case.compiles:
        return
    for dtype in case.tolerance:
        torch._dynamo.reset()
        compiled = torch.compile(case.function, fullgraph=True, backend=BACKEND)
        usual = usual_sizes(case)
        trials = [("", usual), (", called again", usual)]
        if dtype is next(iter(case.tolerance)):
            trials += [
                (f", called again at {size}={count}", {**usual, size: count})
                for size, step in case.sizes.items()
                for count in (steps * step for steps in _OTHER_STEPS)
            ]
        # First all that is eager: what a call leaves behind in Python then shows in the second.
        eager = [call(case, make_inputs(case, dtype, sizes)) for _, sizes in trials]
        for (what, sizes), right in zip(trials, eager, strict=True):
            inputs = make_inputs(case, dtype, sizes)
            said = list(
                _compare(case, f"{dtype}{what}", inputs, right, compiled=compiled, dtype=dtype)
            )
            yield from said
            if said:
                break
    yield from _compare_gradients(case)


def _compare(
    case: Case,
    what: str,
    inputs: Sequence[Any],
    eager: Any,
    *,
    compiled: Callable[..., Any],
    dtype: Any,
) -> Outcomes:
    try:
        result = call(case, inputs, function=compiled)
    except Exception as err:  # noqa: BLE001  (torch.compile raises what the kernel does)
        said = say_error(err)
        yield fault(
            "compile",
            case.name,
            f"{what}: torch.compile(fullgraph=True) fails: {said}",
            "register a fake (torch.library.register_fake) and call no op that torch does not "
            "know, or write compiles=False in the case",
        )
        return
    if isinstance(eager, Refusal):
        return
    if isinstance(result, Refusal):
        yield fault(
            "compile",
            case.name,
            f"{what}: it refuses when compiled, and not in eager: {result.message}",
            "let the checks of a fake be those of the op",
        )
        return
    off = find_difference(result, eager, case.tolerance[dtype])
    if off is not None:
        yield fault(
            "compile",
            case.name,
            f"{what}: compiled and eager differ: {off}",
            "do the same in both, at every call; a fake must tell what the op changes",
        )


def _compare_gradients(case: Case) -> Outcomes:
    """Compare what a compiled step of training gives with what an eager one does."""
    tolerances = gradient_tolerances(case)
    if not case.differentiable or not tolerances:
        return
    dtype = next(iter(tolerances))
    torch._dynamo.reset()
    compiled = torch.compile(case.function, fullgraph=True, backend=BACKEND)
    try:
        eager = _step(case, dtype, case.function)
    except Exception:  # noqa: BLE001  (the check of gradients tells it)
        return
    try:
        found = _step(case, dtype, compiled)
    except Exception as err:  # noqa: BLE001  (torch.compile raises what the kernel does)
        said = say_error(err)
        yield fault(
            "compile",
            case.name,
            f"{dtype}, in training: torch.compile(fullgraph=True) fails: {said}",
            "register backward and fakes, or write compiles=False in the case",
        )
        return
    off = find_difference(found, eager, tolerances[dtype])
    if off is not None:
        yield fault(
            "compile",
            case.name,
            f"{dtype}, in training: compiled and eager differ in results or gradients: {off}",
            "do the same in both",
        )


def _step(case: Case, dtype: Any, function: Callable[..., Any]) -> Sequence[Any]:
    inputs = record(make_inputs(case, dtype, usual_sizes(case)))
    results = tensors_of(as_function(case, function)(*inputs))
    torch.manual_seed(1)
    weights = [torch.randn_like(each, dtype=torch.float64) for each in results]
    gradients = differentiate(results, inputs, weights)
    return (*results, *(each for each in gradients if each is not None))
