"""From a directory on the command line to the plan of its project on this machine."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder.cli.toolkits import ToolkitChoice, apply_toolkits, read_archs
from kernel_builder.config.check import check_backend
from kernel_builder.config.model import Build
from kernel_builder.config.read import find_project, read_build
from kernel_builder.environment import detect_host
from kernel_builder.errors import SelectionError
from kernel_builder.plan import plan
from kernel_builder.planned import Plan, Selection
from kernel_builder.settings import read_settings
from kernel_builder.sources import read_sources
from kernel_spec.backend import BackendKind

if TYPE_CHECKING:
    from kernel_builder.matrix import Possible


def read_selection(
    backends: Iterable[str], variants: Iterable[str], archs: Iterable[str] = ()
) -> Selection:
    """Read what ``--backend``, ``--variant`` and ``--arch`` name.

    Raises:
        SelectionError: no such backend.
    """
    for text in backends:
        objection = check_backend(text)
        if objection is not None:
            hint = f'; did you mean "{objection.suggestion}"?' if objection.suggestion else ""
            raise SelectionError(f"--backend: {objection.message}{hint}")
    return Selection(
        backends=frozenset(BackendKind(text) for text in backends),
        variants=frozenset(variants),
        archs=tuple(archs),
    )


def make_plan(
    place: Path,
    *,
    backends: Iterable[str] = (),
    variants: Iterable[str] = (),
    toolkits: ToolkitChoice | None = None,
) -> tuple[Build, Plan]:
    """Read a project and plan it for this machine.

    Raises:
        ConfigError, ProjectError, SelectionError, ArchError: as the functions that it calls.
    """
    choice, wanted = toolkits or ToolkitChoice(), tuple(variants)
    settings = apply_toolkits(read_settings(), choice, variants=wanted)
    selection = read_selection(backends, wanted, read_archs(choice.archs))
    project = find_project(place)
    build = read_build(project)
    sources = read_sources(project, build)
    return build, plan(build, sources, host=detect_host(settings), selection=selection)


def make_matrix(place: Path, *, toolkits: ToolkitChoice | None = None) -> tuple[Possible, ...]:
    """Read a project and list every variant that it can have.

    Raises:
        ConfigError, ProjectError, SelectionError: as the functions that it calls.
    """
    from kernel_builder.matrix import list_possible
    from kernel_builder.toolchain.cuda import list_pinned

    settings = apply_toolkits(read_settings(), toolkits or ToolkitChoice())
    project = find_project(place)
    build = read_build(project)
    sources = read_sources(project, build)
    pinned = list_pinned(platform.machine())
    return list_possible(build, sources, host=detect_host(settings), pinned=pinned)
