"""Whether a function does the same inside ``torch.compile(fullgraph=True)``."""

from __future__ import annotations

import torch

from kernel_builder.gate.case import Case
from kernel_builder.gate.compare import find_difference
from kernel_builder.gate.outcome import Outcomes, fault
from kernel_builder.gate.trial import Refusal, call, make_inputs, usual_sizes

# torch's own graph capture, fakes and functionalization, without a compiler of machine code.
BACKEND = "aot_eager"


def check_compiled(case: Case) -> Outcomes:
    """Compare eager with compiled, for every dtype."""
    if not case.compiles:
        return
    for dtype in case.tolerance:
        torch._dynamo.reset()
        inputs = make_inputs(case, dtype, usual_sizes(case))
        eager = call(case, inputs)
        try:
            compiled = torch.compile(case.function, fullgraph=True, backend=BACKEND)
            result = call(case, inputs, function=compiled)
        except Exception as err:  # noqa: BLE001  (torch.compile raises what the kernel does)
            said = " ".join(f"{type(err).__name__}: {err}".split())[:300]
            yield fault(
                "compile",
                case.name,
                f"{dtype}: torch.compile(fullgraph=True) fails: {said}",
                "register a fake (torch.library.register_fake) and call no op that torch does not "
                "know, or write compiles=False in the case",
            )
            continue
        if isinstance(eager, Refusal):
            continue
        if isinstance(result, Refusal):
            yield fault(
                "compile",
                case.name,
                f"{dtype}: it refuses when compiled, and not in eager: {result.message}",
                "let the checks of a fake be those of the op",
            )
            continue
        said_off = find_difference(result, eager, case.tolerance[dtype])
        if said_off is not None:
            yield fault(
                "compile",
                case.name,
                f"{dtype}: compiled and eager differ: {said_off}",
                "do the same in both; a fake must tell what the op changes",
            )
