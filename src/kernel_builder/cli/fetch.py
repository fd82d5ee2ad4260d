"""``kernel-builder fetch``: bring here what builds of a project need from the network, and build nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.choice import Choice, apply_choice, choice_options
from kernel_builder.cli.frame import json_option, project_argument
from kernel_builder.cli.inputs import read_input_settings, source_option
from kernel_spec.command import say_note

if TYPE_CHECKING:
    from kernel_builder.fetching import FetchReport


@click.command("fetch")
@project_argument
@choice_options
@source_option
@json_option
def fetch(directory: Path, *, choice: Choice, sources: tuple[str, ...], as_json: bool) -> None:
    """Fetch what build of DIR would fetch here, so that it needs no network later; build nothing.

    The options choose as those of build do. Printed is each thing, the variants that are built with
    it, and where it is; exit code 1: something cannot be had.
    """
    from kernel_builder.config.read import find_project
    from kernel_builder.errors import ToolchainError
    from kernel_builder.fetching import fetch_project
    from kernel_builder.progress import open_reporter

    settings, selection = apply_choice(read_input_settings(sources=sources), choice)
    project = find_project(directory)
    with open_reporter(sys.stderr) as reporter:
        report = fetch_project(project, selection=selection, settings=settings, reporter=reporter)
    click.echo(_write_json(report) if as_json else _write_table(report))
    if not as_json:
        for each in report.skipped:
            say_note(str(each))
    if report.errors:
        raise ToolchainError("\n".join(map(str, report.errors)))


def _write_table(report: FetchReport) -> str:
    """Write a line for each thing: what it is, how many variants it is for, and where."""
    from kernel_builder.columns import format_columns

    if not report.inputs:
        return "nothing to fetch: what these builds need comes with the system and this Python"
    rows = [("input", "for", "place")]
    for each in report.inputs:
        places = " ".join(map(str, each.places)) or "not here"
        rows.append((each.name, " ".join(each.variants), places))
    return format_columns(rows)


def _write_json(report: FetchReport) -> str:
    inputs = [
        {
            "name": each.name,
            "variants": list(each.variants),
            "places": [str(place) for place in each.places],
            "error": None if each.error is None else str(each.error),
        }
        for each in report.inputs
    ]
    skipped = {each.backend.value: each.reason for each in report.skipped}
    return json.dumps({"inputs": inputs, "skipped": skipped}, indent=2)
