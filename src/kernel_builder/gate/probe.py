"""The program that runs the cases of a gate file in a process of its own.

    python -I -B probe.py REQUEST

REQUEST is a file of JSON that :func:`kernel_builder.gate.story.run_gate` writes. Every answer is a line
of JSON at the end of the file that it names: ``begin`` before a check, so that a check that ends the
process is known, and ``end`` with what it found.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_builder.gate.case import Case
    from kernel_builder.gate.outcome import Outcomes

_OPS = "ops"
# A case that raises at usual inputs would do so in every check.
_FIRST = "values"
# The exit code where the variant, or its gate file, cannot be loaded.
UNUSABLE = 4


def read_cases(place: Path, kernel: ModuleType, device: Any) -> tuple[Case, ...]:
    """Run a gate file and return what its ``cases(kernel, device)`` yields.

    Raises:
        ValueError: it has no such function, yields no case, or two of one name.
    """
    from kernel_builder.gate.case import Case

    module = ModuleType("gate")
    module.__file__ = str(place)
    exec(compile(place.read_text(encoding="utf-8"), str(place), "exec"), module.__dict__)
    function = getattr(module, "cases", None)
    if function is None:
        raise ValueError(f"{place.name}: expected a function cases(kernel, device), found none")
    found = tuple(function(kernel, device))
    if not found or not all(isinstance(each, Case) for each in found):
        raise ValueError(f"{place.name}: cases() yields no kernel_builder.gate.Case, or others too")
    names = [each.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{place.name}: two cases are called {', '.join(twice)}")
    return found


def load_kernel(directory: Path, needed: Sequence[Mapping[str, Any]]) -> ModuleType:
    """Import a variant and, before it, the kernels that it needs, as ``needed.find_needed`` names them.

    Raises:
        KernelError: files are not those that were built, or an import fails.
    """
    from kernels.importer import load
    from kernels.variant_dir import read_variant

    below = {
        each["repo_id"]: load_kernel(Path(each["directory"]), each["needs"]) for each in needed
    }
    return load(read_variant(directory), below)


def list_checks(
    cases: tuple[Case, ...], namespace: str, device: str, died: Sequence[str] = ()
) -> Iterator[tuple[str, str, Callable[[], Outcomes]]]:
    """Yield every check: the case, the name of the check, and what does it.

    Of a case that ended an earlier process, ops are not tried at unusual sizes.
    """
    from functools import partial

    from kernel_builder.gate import compiled, gradients, large, layouts, ops, values

    checks = {
        _FIRST: values.check_values,
        "unwritten": values.check_unwritten,
        "sizes": values.check_sizes,
        "layouts": layouts.check_layouts,
        "zeros": values.check_zeros,
        "gradients": gradients.check_gradients,
        "compile": compiled.check_compiled,
        "large": large.check_large,
        "far": layouts.check_far,
    }
    for case in cases:
        for name, function in checks.items():
            yield case.name, name, partial(function, case)
    steady = frozenset(case.name for case in cases if case.name not in died)
    yield "", _OPS, partial(ops.check_registered, namespace, cases, device, steady)


def run_check(function: Callable[[], Outcomes], name: str, check: str) -> dict[str, Any]:
    """Run a check and return what it found, as JSON values."""
    from kernel_builder.check.finding import Finding
    from kernel_builder.gate.outcome import Unproved, fault, say_error

    faults, unproved, refused = [], [], []
    try:
        for outcome in function():
            if isinstance(outcome, Finding):
                faults.append(asdict(outcome))
            elif isinstance(outcome, Unproved):
                unproved.append(outcome.message)
            else:
                refused.append(outcome.message)
    except Exception as err:  # noqa: BLE001  (a kernel's code ran)
        said = say_error(err)
        traceback.print_exc()
        rest = " (its other checks were not run)" if check == _FIRST else ""
        what = f"it raises {said}{rest}"
        faults.append(asdict(fault(check, name, what, "correct the kernel or the case")))
        return {"faults": faults, "unproved": [], "refused": [], "raised": True}
    return {"faults": faults, "unproved": unproved, "refused": refused, "raised": False}


def main(request: dict[str, Any]) -> int:
    """Run all checks that an earlier process has not begun; return the exit code."""
    sys.path.append(request["root"])
    import torch

    device = torch.device(request["device"])
    with Path(request["answer"]).open("a", encoding="utf-8") as stream:
        try:
            kernel = load_kernel(Path(request["directory"]), request["needed"])
            cases = read_cases(Path(request["file"]), kernel, device)
        except Exception as err:  # noqa: BLE001  (a kernel's code ran, and a project's)
            _write(stream, {"unusable": _place(err, request["file"])})
            return UNUSABLE
        if request["skip"] == 0:
            _write(stream, {"about": _describe(cases, device)})
        checks = list(list_checks(cases, request["id"], device.type, request["died"]))
        broken: set[str] = set()
        for index, (name, check, function) in enumerate(checks):
            if index < request["skip"] or name in broken:
                continue
            _write(stream, {"begin": index, "case": name, "check": check})
            found = run_check(function, name, check)
            _write(stream, {"end": index, **found})
            if check == _FIRST and found["raised"]:
                broken.add(name)
    return 0


def _place(error: Exception, file: str) -> str:
    """Write an error with the line of the gate file that it comes from."""
    lines = [
        each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == file
    ]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    place = f"{Path(file).name}:{lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}: {error}"


def _describe(cases: tuple[Case, ...], device: Any) -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else os.uname().machine
    return {
        "torch": torch.__version__,
        "device": name,
        "cases": {
            case.name: {
                "dtypes": [str(dtype).removeprefix("torch.") for dtype in case.tolerance],
                "differentiable": case.differentiable,
                "compiles": case.compiles,
                "layer": case.layer,
            }
            for case in cases
        },
    }


def _write(stream: IO[str], document: dict[str, Any]) -> None:
    stream.write(json.dumps(document) + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
