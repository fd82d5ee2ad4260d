"""The story of a lock: plan → what is here → what was locked → differences → told, refused or written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_builder.config.read import read_build
from kernel_builder.environment import detect_host
from kernel_builder.errors import LockError, SelectionError
from kernel_builder.inventory import collect_inputs
from kernel_builder.lockfile import (
    FILE_NAME,
    Drift,
    compare_inputs,
    find_lock,
    judge_drift,
    write_lock,
)
from kernel_builder.plan import plan
from kernel_builder.planned import EVERYTHING, Selection, VariantBuild
from kernel_builder.settings import Settings
from kernel_builder.sources import read_sources


@dataclass(frozen=True, kw_only=True, slots=True)
class Locked:
    """What came of writing a lock.

    Attributes:
        path: the lock.
        count: how many inputs it has.
        changes: what was changed in it; for a new one, nothing.
        written: whether it was written.
    """

    path: Path
    count: int
    changes: tuple[Drift, ...]
    written: bool


def lock_project(project: Path, settings: Settings, *, selection: Selection = EVERYTHING) -> Locked:
    """Write the lock of a project that has none; one that is there and right is left alone.

    Args:
        project: the directory of the project.
        settings: what the environment and the command line say of toolkits.
        selection: the builds that the lock is for.

    Raises:
        LockError: there is one that says otherwise; updating it is another command.
        SelectionError: nothing of it can be built here.
    """
    found, is_whole = _collect_all(project, settings, selection)
    locked = find_lock(project)
    if locked is None:
        path = write_lock(project, found)
        return Locked(path=path, count=len(found), changes=(), written=True)
    judge_drift(compare_inputs(locked, found, whole=is_whole), strict=True)
    return Locked(path=project / FILE_NAME, count=len(found), changes=(), written=False)


def update_lock(
    project: Path,
    names: Iterable[str],
    settings: Settings,
    *,
    selection: Selection = EVERYTHING,
) -> Locked:
    """Take what is here into the lock: these inputs, or all.

    Args:
        project: the directory of the project.
        names: the inputs; none: all.
        settings: what the environment and the command line say of toolkits.
        selection: only what these builds use.

    Raises:
        LockError: there is no lock, or no such input.
        SelectionError: nothing of it can be built here.
    """
    locked = find_lock(project)
    if locked is None:
        raise LockError(f"{project}: no {FILE_NAME}; write one: kernel-builder lock {project}")
    found, is_whole = _collect_all(project, settings, selection)
    names = set(names)
    chosen = names or {*locked, *found}
    unknown = sorted(chosen - {*locked, *found})
    if unknown:
        raise LockError(
            f"{project / FILE_NAME}: no input {', '.join(unknown)}; it has {', '.join(sorted(locked))}"
        )
    # What a backend needs that cannot be built here stays, unless it is named.
    differing = compare_inputs(locked, found, whole=is_whole or bool(names))
    drifts = [each for each in differing if each.name in chosen]
    merged: dict[str, Any] = dict(locked)
    for drift in drifts:
        merged.pop(drift.name, None)
        if drift.found is not None:
            merged[drift.name] = drift.found
    path = write_lock(project, merged) if drifts else project / FILE_NAME
    return Locked(path=path, count=len(merged), changes=tuple(drifts), written=bool(drifts))


def check_lock(
    project: Path, variants: Iterable[VariantBuild], settings: Settings, *, strict: bool
) -> list[str]:
    """Compare what variants would be built with to the lock, and return what is to be told.

    Args:
        project: the directory of the project.
        variants: what is to be built.
        settings: what the environment says.
        strict: whether there must be a lock, and even what the system brings must be as locked.

    Raises:
        LockError: something else than what was locked would be used.
    """
    locked = find_lock(project)
    if locked is None:
        if strict:
            raise LockError(
                f"{project}: --locked, and there is no {FILE_NAME}; write one and commit it: "
                f"kernel-builder lock {project}"
            )
        return []
    found = collect_inputs(variants, settings)
    return judge_drift(compare_inputs(locked, found, whole=False), strict=strict)


def _collect_all(
    project: Path, settings: Settings, selection: Selection
) -> tuple[dict[str, dict[str, Any]], bool]:
    """Return the inputs of the chosen variants, and whether these are all that the project uses."""
    build = read_build(project)
    made = plan(
        build,
        read_sources(project, build),
        host=detect_host(settings),
        selection=selection,
    )
    if not made.variants:
        lines = "".join(f"\n  {each}" for each in made.skipped)
        raise SelectionError(
            f"{project}: nothing that the lock is to be for can be built here{lines}"
        )
    # Who names toolkits, a torch or a processor speaks of these alone; else each build may choose its own.
    toolkits = bool(settings.cuda_versions) or settings.cpu is not None
    stated = toolkits or bool(settings.torch_versions)
    found = collect_inputs(made.variants, settings, every_toolkit=not toolkits)
    return found, not (made.skipped or stated or selection.names_some)
