"""``kernel-builder lock`` and ``update``: what goes into a project's builds, by version and hash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.frame import project_argument
from kernel_builder.cli.inputs import read_input_settings, source_option

if TYPE_CHECKING:
    from kernel_builder.locking import Locked


@click.command("lock")
@project_argument
@source_option
def lock(directory: Path, sources: tuple[str, ...]) -> None:
    """Write DIR/kernel-builder.lock, or check that it is right where it is there."""
    from kernel_builder.config.read import find_project
    from kernel_builder.locking import lock_project

    done = lock_project(find_project(directory), read_input_settings(sources=sources))
    if done.written:
        click.echo(f"wrote {done.path}: {_count(done)}; commit it")
    else:
        click.echo(f"{done.path} is right: {_count(done)}")


@click.command("update")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--project",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(),
    metavar="DIR",
    help="The project [default: the current directory].",
)
@source_option
def update(names: tuple[str, ...], directory: Path, sources: tuple[str, ...]) -> None:
    """Take what is here into kernel-builder.lock: the inputs NAME, or all; show what changes."""
    from kernel_builder.config.read import find_project
    from kernel_builder.locking import update_lock

    done = update_lock(find_project(directory), names, read_input_settings(sources=sources))
    for change in done.changes:
        click.echo(str(change))
    click.echo(f"wrote {done.path}" if done.written else f"{done.path}: nothing to change")


def _count(done: Locked) -> str:
    return f"{done.count} inputs" if done.count != 1 else "1 input"
