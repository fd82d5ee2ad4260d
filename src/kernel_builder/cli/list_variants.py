"""``kernel-builder list-variants``: the names of what can be built here."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernel_builder.cli.frame import json_option, project_argument, selection_options
from kernel_builder.cli.toolkits import ToolkitChoice, toolkit_options


@click.command("list-variants")
@project_argument
@selection_options
@toolkit_options
@json_option
def list_variants(
    directory: Path,
    backends: tuple[str, ...],
    variants: tuple[str, ...],
    toolkits: ToolkitChoice,
    as_json: bool,
) -> None:
    """List the variants of DIR that can be built here; what cannot goes to stderr."""
    from kernel_builder.cli.making import make_plan

    _, made = make_plan(directory, backends=backends, variants=variants, toolkits=toolkits)
    names = [str(each.variant) for each in made.variants]
    if as_json:
        skipped = {each.backend.value: each.reason for each in made.skipped}
        click.echo(json.dumps({"variants": names, "skipped": skipped}, indent=2))
        return
    for name in names:
        click.echo(name)
    for each in made.skipped:
        click.echo(str(each), err=True)
