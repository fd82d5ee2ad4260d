"""``kernel-builder check-builds``: whether every directory of ``build/`` is a variant that says what it is."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.frame import place_of, project_argument
from kernel_spec.amounts import format_count


@click.command("check-builds")
@project_argument
def check_builds(directory: Path) -> None:
    """Check that each variant of DIR has a metadata.json that can be read, all of one kernel."""
    from kernel_builder.check.builds import find_build_faults, list_builds

    place = place_of(directory)
    builds = list_builds(place)
    faults = find_build_faults(builds)
    for fault in faults:
        click.echo(fault)
    if faults:
        raise click.exceptions.Exit(1)
    click.echo(f"{format_count(len(builds), 'variant')}: ok")
