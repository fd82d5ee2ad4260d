"""The story of the gate: variant → what it needs → its cases in a clean process → faults, or a proof in its metadata."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_builder.check.finding import Finding
from kernel_builder.check.variant import find_variants
from kernel_builder.described import write_metadata
from kernel_builder.errors import CommandError, ImportCheckError, ProjectError
from kernel_builder.gate import needed, probe
from kernel_builder.gate.fresh_memory import MALLOC_BYTE
from kernel_builder.gate.outcome import GATE_FILE, fault
from kernel_builder.import_check import find_loader, python_places
from kernel_builder.process import run
from kernel_builder.proof import add_proof, remove_proof
from kernel_builder.sandbox import Sandbox, View, choose_sandbox, run_confined
from kernel_builder.settings import Settings
from kernel_spec.backend import BackendKind
from kernel_spec.metadata import FILE_NAME, Metadata, parse_metadata

# A check that ends the process is skipped by the next one; a kernel that does so often is broken.
_MOST_DEATHS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """What the gate says of a variant.

    Attributes:
        variant: its directory.
        device: where its cases ran.
        faults: what is wrong; empty: the proof is in its metadata.
        unproved: what could not be proved here, a sentence each.
        refused: the unusual inputs that it refuses, a sentence each.
        proof: what was proved; None where something is wrong.
        notes: how the process was separated from the machine.
    """

    variant: Path
    device: str
    faults: tuple[Finding, ...]
    unproved: tuple[str, ...]
    refused: tuple[str, ...]
    proof: Mapping[str, Any] | None
    notes: tuple[str, ...]


def choose_variants(directory: Path, device: str) -> tuple[Path, ...]:
    """Find the variants of a project for a device.

    Raises:
        ProjectError: there is none.
    """
    backends = {
        place: parse_metadata((place / FILE_NAME).read_bytes()).backend
        for place in find_variants(directory)
    }
    found = tuple(place for place, backend in backends.items() if backend is BackendKind(device))
    if not found:
        there = ", ".join(sorted({backend.value for backend in backends.values()}))
        raise ProjectError(
            f"{directory}: no variant for {device} is built, but for {there}; build it (kernel-builder "
            f"build {directory} --backend {device}), or name a device that there is one for "
            "(--device), on a machine that has it"
        )
    others = [place.name for place in found if place.name.startswith("tvm-ffi")]
    if others:
        raise ProjectError(
            f"{', '.join(others)}: the gate calls what torch registers, and the functions of this "
            "kernel are TVM FFI's; test them in tests/ and check the rest without --gate"
        )
    return found


def find_gate_file(directory: Path) -> Path:
    """Find the gate file of a project, from the project, its ``build`` or one of its variants.

    Raises:
        ProjectError: there is none.
    """
    place = directory.resolve()
    for root in (place, *place.parents[:2]):
        if (root / GATE_FILE).is_file():
            return root / GATE_FILE
    raise ProjectError(
        f"{directory}: no {GATE_FILE} there, which says what the kernel should compute; "
        "docs/guide/checks.md shows one"
    )


def run_gate(
    variant: Path,
    *,
    gate_file: Path,
    device: str,
    settings: Settings,
    seconds: float,
) -> GateResult:
    """Run the cases of a variant, and write what is proved into its ``metadata.json``.

    Args:
        variant: the directory of the variant.
        gate_file: the file of its cases.
        device: ``cpu`` or ``cuda``.
        settings: the environment of programs, and whether they are confined.
        seconds: the longest time that all cases together may take.

    Raises:
        ImportCheckError: a kernel that it needs cannot be had.
        ProjectError: the variant cannot be loaded, or the gate file is wrong; it says where.
        CommandError: the process ended before anything was tried.
    """
    variant = variant.resolve()
    metadata = parse_metadata((variant / FILE_NAME).read_bytes())
    sandbox = choose_sandbox(settings)
    with tempfile.TemporaryDirectory(prefix="gate-") as scratch:
        request: dict[str, Any] = {
            "root": find_loader() or str(Path(probe.__file__).parents[2]),
            "directory": str(variant),
            "file": str(gate_file),
            "device": device,
            "id": metadata.id,
            "answer": str(Path(scratch) / "answer"),
            "needed": [],
        }
        if metadata.kernel_depends:
            request["needed"] = _find_needed(request, Path(scratch), seconds)
        lines, deaths = _run(request, Path(scratch), sandbox, settings, seconds)
    result = _conclude(lines, deaths, variant, device, (sandbox.note,))
    _record(variant, metadata, result)
    return result


def _find_needed(request: Mapping[str, Any], scratch: Path, seconds: float) -> list[dict[str, Any]]:
    """Find the kernels that the variant needs, with the user's own environment and network."""
    asked, answer = scratch / "needed.json", scratch / "found.json"
    asked.write_text(json.dumps({**request, "answer": str(answer)}))
    try:
        run([sys.executable, "-I", "-B", needed.__file__, asked], cwd=scratch, timeout=seconds)
    except CommandError as err:
        if err.finished.code != needed.LACKING or not answer.is_file():
            raise
        raise ImportCheckError(
            f"{Path(request['directory']).name}: the gate loads it with the kernels of its "
            f"kernel-depends, and one cannot be had:\n{json.loads(answer.read_text())['lacking']}\n"
            "Before that kernel is published, LOCAL_KERNELS=owner/name=path names a copy that is "
            "built on this disk; KERNELS_HUB names the hubs that have others."
        ) from err
    found: list[dict[str, Any]] = json.loads(answer.read_text())["needed"]
    return found


def _places(found: Sequence[Mapping[str, Any]]) -> Iterator[Path]:
    for each in found:
        yield Path(each["directory"])
        yield from _places(each["needs"])


def _run(
    request: dict[str, Any],
    scratch: Path,
    sandbox: Sandbox,
    settings: Settings,
    seconds: float,
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Run the program, and again behind a check that ended it."""
    answer, asked = Path(request["answer"]), scratch / "request.json"
    deaths: list[Finding] = []
    until = time.monotonic() + seconds
    skip = 0
    while True:
        died = [each.symbol for each in deaths]
        asked.write_text(json.dumps({**request, "skip": skip, "died": died}))
        try:
            run_confined(
                [sys.executable, "-I", "-B", probe.__file__, asked],
                sandbox=sandbox,
                view=_view(request, scratch),
                cwd=scratch,
                variables=_variables(settings, scratch),
                timeout=max(1.0, until - time.monotonic()),
            )
        except CommandError as err:
            lines = _read(answer)
            last = lines[-1] if lines else {}
            if "unusable" in last:
                raise _describe_unusable(request, last["unusable"]) from err
            if "begin" not in last:
                raise
            late = time.monotonic() >= until
            deaths.append(_describe_death(last, err.finished.code, seconds if late else None))
            if late or len(deaths) == _MOST_DEATHS:
                return lines, deaths
            skip = last["begin"] + 1
        else:
            return _read(answer), deaths


def _describe_death(begun: Mapping[str, Any], code: int, late: float | None) -> Finding:
    """Say which check ended the process, and how.

    Args:
        begun: the line of the check.
        code: the exit code; negative where a signal ended it.
        late: the seconds after which it was stopped; None: it was not.
    """
    if late is not None:
        how = f"not done after {late:g} s"
        fix = "see what it does at the sizes of this check; --timeout gives it longer"
    else:
        how = f"the process ended with {'signal' if code < 0 else 'exit code'} {abs(code)}"
        fix = "it touches memory that is not its own, or ends the process itself"
    return fault(begun["check"], begun["case"], f"{begun['check']}: {how}", fix)


def _describe_unusable(request: Mapping[str, Any], said: str) -> ProjectError:
    return ProjectError(
        f"{request['file']}: its cases cannot be read with {Path(request['directory']).name}: {said}; "
        "correct it, and see docs/guide/checks.md"
    )


def _view(request: Mapping[str, Any], scratch: Path) -> View:
    package = Path(probe.__file__).parents[1]
    readable = (Path(request["directory"]), Path(request["file"]).parent, package)
    places = (*readable, *_places(request["needed"]), *python_places())
    return View(readable=places, writable=(scratch,), gpu=True)


def _variables(settings: Settings, scratch: Path) -> dict[str, str]:
    return {
        **settings.variables,
        # Memory that malloc gives holds MALLOC_BYTE; its shortcut for small pieces would not do so.
        "GLIBC_TUNABLES": f"glibc.malloc.perturb={MALLOC_BYTE ^ 0xFF}:glibc.malloc.tcache_count=0",
        "USER": "gate",  # torch asks for a name, and the list of users may be out of sight
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }


def _read(answer: Path) -> list[dict[str, Any]]:
    if not answer.is_file():
        return []
    return [json.loads(line) for line in answer.read_text(encoding="utf-8").splitlines()]


def _conclude(
    lines: list[dict[str, Any]],
    deaths: list[Finding],
    variant: Path,
    device: str,
    notes: tuple[str, ...],
) -> GateResult:
    about = lines[0]["about"]
    begun = {line["begin"]: line for line in lines if "begin" in line}
    faults, refused = list(deaths), []
    unproved: dict[str, list[str]] = {}
    proved: dict[str, list[str]] = {}
    for line in lines:
        if "end" not in line:
            continue
        case, check = begun[line["end"]]["case"], begun[line["end"]]["check"]
        prefix = f"{case}: " if case else ""
        faults += [Finding(**each) for each in line["faults"]]
        for each in line["unproved"]:
            unproved.setdefault(each, []).append(case)
        refused += [f"{prefix}{each}" for each in line["refused"]]
        declared = about["cases"].get(case, {})
        absent = {"gradients": "differentiable", "compile": "compiles"}.get(check)
        if not line["faults"] and not line["unproved"] and declared.get(absent, True):
            proved.setdefault(case, []).append(check)
    return GateResult(
        variant=variant,
        device=device,
        faults=tuple(_condense(faults)),
        unproved=tuple(
            f"{said} ({', '.join(names)})" if names != [""] else said
            for said, names in unproved.items()
        ),
        refused=tuple(refused),
        proof=None if faults else _describe_proof(about, proved),
        notes=notes,
    )


def _describe_proof(about: Mapping[str, Any], proved: Mapping[str, list[str]]) -> dict[str, Any]:
    """Write what was proved: of each case, and so of each layer that stands or falls with one."""
    said = about["cases"]
    return {
        "torch": about["torch"],
        "on": about["device"],
        "cases": {
            name: {"dtypes": case["dtypes"], "proved": proved.get(name, [])}
            for name, case in said.items()
        },
        "layers": {
            case["layer"]: {
                "has_backward": case["differentiable"],
                "can_torch_compile": case["compiles"],
            }
            for case in said.values()
            if case["layer"] is not None
        },
    }


def _condense(faults: list[Finding]) -> list[Finding]:
    """Keep one fault of each rule and name, which says how many more there are."""
    kept: dict[tuple[str, str | None], list[Finding]] = {}
    for each in faults:
        kept.setdefault((each.rule, each.symbol), []).append(each)
    return [
        first if not more else replace(first, message=f"{first.message} (and {len(more)} more)")
        for first, *more in kept.values()
    ]


def _record(variant: Path, metadata: Metadata, result: GateResult) -> None:
    """Write the proof into the metadata, or take away the one that no longer holds."""
    if result.proof is None:
        changed = remove_proof(metadata, result.device)
    else:
        proof = dict(result.proof)
        layers = proof.pop("layers")
        changed = add_proof(metadata, result.device, proof, layers)
    if changed != metadata:
        write_metadata(variant, changed)
