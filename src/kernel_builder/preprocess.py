"""What the staged sources of a variant register, as the preprocessor leaves them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from kernel_builder.environment import Environment
from kernel_builder.flags import preprocessor_flags
from kernel_builder.planned import VariantBuild
from kernel_builder.process import run
from kernel_builder.registrations import (
    WRAPPERS,
    Registration,
    Registrations,
    join_registrations,
    mentions_library,
    parse_registrations,
)
from kernel_builder.settings import Settings
from kernel_builder.units import CompileUnit
from kernel_spec.document import UNREADABLE
from kernel_spec.whole_file import write_whole

# Raise it when the same sources would be read otherwise.
GENERATOR = 1


def read_registrations(
    build: VariantBuild, environment: Environment, *, stage: Path, settings: Settings
) -> Registrations:
    """Read the registrations of a variant; those of the same sources are read once.

    Args:
        build: the variant.
        environment: what it is built with.
        stage: the staged sources.
        settings: where the results are kept.

    Raises:
        CommandError: the preprocessor fails.
    """
    headers = [stage / path for path in build.headers]
    in_headers = any(mentions_library(path.read_bytes()) for path in headers)
    units = [
        unit
        for unit in build.units
        if in_headers or mentions_library((stage / unit.source).read_bytes())
    ]
    facts = [
        str(GENERATOR),
        repr(build),
        environment.toolchain.identity,
        "" if environment.torch is None else environment.torch.identity,
    ]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
    kept = settings.cache / "registrations" / f"{key}.json"
    found = _find_kept(kept)
    if found is None:
        found = join_registrations(
            _preprocess(unit, build, environment, stage=stage, settings=settings) for unit in units
        )
        _keep(kept, found)
    return found


def _preprocess(
    unit: CompileUnit,
    build: VariantBuild,
    environment: Environment,
    *,
    stage: Path,
    settings: Settings,
) -> Registrations:
    wrappers = stage.parent / "wrappers"
    for place, text in WRAPPERS.items():
        (wrappers / place).parent.mkdir(parents=True, exist_ok=True)
        (wrappers / place).write_text(text)
    command = [*environment.toolchain.command, "-E", "-P", "-x", "c++", f"-I{wrappers}"]
    command += preprocessor_flags(unit, build, environment, stage)
    finished = run([*command, unit.source], cwd=stage, variables=settings.variables)
    return parse_registrations(finished.output, source=unit.source)


def _find_kept(place: Path) -> Registrations | None:
    try:
        document = json.loads(place.read_text())
        calls = tuple(Registration(**call) for call in document["calls"])
        return Registrations(calls=calls, unread=tuple(document["unread"]))
    except UNREADABLE:
        return None


def _keep(place: Path, found: Registrations) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, json.dumps(asdict(found)).encode(), lasting=False)
