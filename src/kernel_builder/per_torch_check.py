"""The check of per-torch libraries' sources: they give code to ops of the binding, and define none."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_builder.check.finding import Finding
from kernel_builder.check.registered import check_calls
from kernel_builder.environment import Environment
from kernel_builder.errors import CheckError
from kernel_builder.job import Job
from kernel_builder.per_torch import find_loadable
from kernel_builder.planned import VariantBuild
from kernel_builder.preprocess import read_registrations
from kernel_builder.registrations import Registrations
from kernel_spec.variant import ArchVariant

_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(el)?if", re.MULTILINE)


def name_part(part: VariantBuild) -> str:
    """Return the name of the directory that a per-torch library is built in."""
    return f"torch-{part.release}"


def check_parts(
    job: Job, environment: Environment | None, own: Sequence[Environment], scratch: Path
) -> tuple[str, ...]:
    """Check that per-torch libraries give code to ops that the main library has, and define none.

    The ops of a kernel are the same with and without them.

    Args:
        job: the variant, which is compiled.
        environment: what it was built with.
        own: what its per-torch libraries were built with.
        scratch: where its sources and those of its per-torch libraries are staged.

    Returns:
        What stays unproved, a sentence each.

    Raises:
        CheckError: with every call that does something else.
    """
    if environment is None or not job.build.per_torch:
        return ()
    main = read_registrations(job.build, environment, stage=scratch / "src", settings=job.settings)
    findings: list[Finding] = []
    for part, headers in zip(job.build.per_torch, own, strict=True):
        stage = scratch / name_part(part) / "src"
        found = read_registrations(part, headers, stage=stage, settings=job.settings)
        findings += judge_parts(job.build.op_id, main, found)
        if not has_conditions(stage):
            break  # the same files, which register the same for each torch
    if findings:
        raise CheckError(job.name, tuple(dict.fromkeys(findings)))
    return _describe_unloaded(job.build, environment)


def has_conditions(stage: Path) -> bool:
    """Say whether what a file says may depend on the torch: whether any has an ``#if`` of a kind."""
    files = (path for path in stage.rglob("*") if path.is_file())
    return any(_CONDITION.search(path.read_bytes()) for path in files)


def judge_parts(op_id: str, main: Registrations, parts: Registrations) -> Iterator[Finding]:
    """Find what the sources of per-torch libraries register that they should not.

    Args:
        op_id: the namespace of the kernel.
        main: what the sources of the main library register.
        parts: what theirs do.
    """
    yield from check_calls(op_id, parts)
    defined = {call.name for call in main.calls if call.defines}
    given = {(call.name, call.key) for call in main.calls if call.key is not None}
    counts = Counter((call.name, call.key) for call in parts.calls if not call.defines)
    for call in dict.fromkeys(parts.calls):
        if call.defines:
            message, fix = (
                "a per-torch library defines it, so that it is there with some torches alone",
                "define it in the binding, with code that does without the library",
            )
        elif call.name not in defined:
            message, fix = (
                "a per-torch library gives it code, and the binding defines no such op",
                f"define it in the binding; it has {', '.join(sorted(defined)) or 'none'}",
            )
        elif (call.name, call.key) in given:
            message, fix = (
                f"the main library has code for {call.key} as well, and which one counts would "
                "depend on the order",
                "give the code in one of them",
            )
        elif counts[call.name, call.key] > 1:
            message, fix = (
                f"per-torch libraries give it code for {call.key} {counts[call.name, call.key]} "
                "times; torch takes the last and warns each user",
                "give the code once",
            )
        else:
            continue
        yield Finding(
            file=call.source, rule="per-torch-op", symbol=call.name, message=message, fix=fix
        )


def _describe_unloaded(build: VariantBuild, environment: Environment) -> tuple[str, ...]:
    """Say which per-torch libraries were not loaded: their symbols are checked all the same."""
    assert isinstance(build.variant, ArchVariant)
    torch = None if environment.torch is None else environment.torch.build
    is_other = build.variant.cpu != platform.machine()
    loaded = None if is_other else find_loadable(build, torch)
    left = [str(part.release) for part in build.per_torch if part is not loaded]
    if not left:
        return ()
    why = "they are for another processor" if is_other else "another torch is installed"
    return (
        f"its libraries for torch {', '.join(left)} have all their symbols there and were not "
        f"loaded, since {why}",
    )
