"""``kernel-builder lock`` and ``update``: what goes into a project's builds, by version and hash."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.choice import Choice, apply_choice, choice_options
from kernel_builder.cli.frame import project_argument
from kernel_builder.cli.inputs import read_input_settings, source_option
from kernel_spec.amounts import format_count


@click.command("lock")
@project_argument
@choice_options
@source_option
def lock(directory: Path, *, choice: Choice, sources: tuple[str, ...]) -> None:
    """Write DIR/kernel-builder.lock, or check that it is right where it is there.

    The options choose as those of build do; without any, the lock is for all that can be built
    here, with every pinned CUDA toolkit.
    """
    from kernel_builder.config.read import find_project
    from kernel_builder.locking import lock_project

    settings, selection = apply_choice(read_input_settings(sources=sources), choice)
    done = lock_project(find_project(directory), settings, selection=selection)
    if done.written:
        click.echo(f"wrote {done.path}: {format_count(done.count, 'input')}; commit it")
    else:
        click.echo(f"{done.path} is right: {format_count(done.count, 'input')}")


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
@choice_options
@source_option
def update(
    names: tuple[str, ...], directory: Path, *, choice: Choice, sources: tuple[str, ...]
) -> None:
    """Take what is here into kernel-builder.lock: the inputs NAME, or all; show what changes.

    The options choose as those of build do; what only other builds use stays in the lock as it is.
    """
    from kernel_builder.config.read import find_project
    from kernel_builder.locking import update_lock

    settings, selection = apply_choice(read_input_settings(sources=sources), choice)
    done = update_lock(find_project(directory), names, settings, selection=selection)
    for change in done.changes:
        click.echo(str(change))
    click.echo(f"wrote {done.path}" if done.written else f"{done.path}: nothing to change")
