"""From a directory on the command line to the plan of its project on this machine."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_builder.cli.choice import Choice, apply_choice
from kernel_builder.config.model import Build
from kernel_builder.config.read import find_project, read_build
from kernel_builder.environment import detect_host
from kernel_builder.plan import plan
from kernel_builder.planned import Plan
from kernel_builder.settings import read_settings
from kernel_builder.sources import read_sources

if TYPE_CHECKING:
    from kernel_builder.matrix import Possible


def make_plan(place: Path, choice: Choice) -> tuple[Build, Plan]:
    """Read a project and plan it for this machine.

    Raises:
        ConfigError, ProjectError, SelectionError, ArchError: as the functions that it calls.
    """
    settings, selection = apply_choice(read_settings(), choice)
    project = find_project(place)
    build = read_build(project)
    sources = read_sources(project, build)
    return build, plan(build, sources, host=detect_host(settings), selection=selection)


def make_matrix(place: Path, choice: Choice) -> tuple[Possible, ...]:
    """Read a project and list every variant that it can have, of those that are chosen.

    Raises:
        ConfigError, ProjectError, SelectionError: as the functions that it calls.
    """
    from kernel_builder.matrix import list_possible
    from kernel_builder.toolchain.cuda import list_pinned

    # What a variant needs is told as of a plain build, whatever is named.
    settings, selection = apply_choice(read_settings(), replace(choice, variants=()))
    project = find_project(place)
    build = read_build(project)
    sources = read_sources(project, build)
    pinned = list_pinned(platform.machine())
    return tuple(
        each
        for each in list_possible(build, sources, host=detect_host(settings), pinned=pinned)
        if not selection.backends or each.backend in selection.backends
        if not choice.variants or each.variant in choice.variants
    )
