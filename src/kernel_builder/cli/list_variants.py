"""``kernel-builder list-variants``: the names of what can be built here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.choice import Choice, choice_options
from kernel_builder.cli.frame import json_option, project_argument
from kernel_spec.command import say_note

if TYPE_CHECKING:
    from kernel_builder.matrix import Possible


@click.command("list-variants")
@project_argument
@choice_options
@click.option(
    "--matrix",
    is_flag=True,
    help="List every variant that DIR can have, and what each needs, for the releases of torch that the "
    "published builder serves; --torch builds for others.",
)
@json_option
def list_variants(directory: Path, *, choice: Choice, matrix: bool, as_json: bool) -> None:
    """List the variants of DIR that can be built here; what cannot goes to stderr."""
    from kernel_builder.cli.making import make_matrix, make_plan

    if matrix:
        _show(make_matrix(directory, choice), as_json=as_json)
        return
    _, made = make_plan(directory, choice)
    names = [str(each.variant) for each in made.variants]
    if as_json:
        skipped = {each.backend.value: each.reason for each in made.skipped}
        click.echo(json.dumps({"variants": names, "skipped": skipped}, indent=2))
        return
    for name in names:
        click.echo(name)
    for each in made.skipped:
        say_note(str(each))


def _show(found: tuple[Possible, ...], *, as_json: bool) -> None:
    """Write a line for each variant: its name, and what building it needs."""
    from kernel_builder.columns import format_columns

    if as_json:
        click.echo(json.dumps({each.variant: list(each.needs) for each in found}, indent=2))
        return
    rows = [("variant", "needs"), *((each.variant, "; ".join(each.needs) or "-") for each in found)]
    click.echo(format_columns(rows))
