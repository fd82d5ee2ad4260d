"""``kernel-builder update-build``: bring a ``build.toml`` to the current edition, shown first."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("update-build")
@click.argument("directory", metavar="[DIR|FILE]", type=click.Path(path_type=Path), default=Path())
@click.option("--yes", "-y", "sure", is_flag=True, help="Write it without asking.")
@click.option("--dry-run", is_flag=True, help="Show the difference, write nothing.")
@click.option(
    "--license",
    "licence",
    metavar="SPDX",
    help="The licence, where the file states none: old editions did not need one.",
)
def update_build(directory: Path, sure: bool, dry_run: bool, licence: str | None) -> None:
    """Bring DIR/build.toml to the current edition; comments, order and version texts stay."""
    from kernel_builder.config.edit import migrate
    from kernel_builder.config.model import CURRENT_EDITION, FILE_NAME
    from kernel_builder.config.read import find_project, read_bytes

    if sure and dry_run:
        raise click.UsageError("--yes and --dry-run exclude each other")
    if licence is not None and not licence.strip():
        raise click.UsageError("--license: found an empty text; expected one such as Apache-2.0")
    file = find_project(directory) / FILE_NAME
    before = read_bytes(file)
    after = migrate(before, file=str(file), licence=licence).encode()
    if after == before:
        click.echo(f"{file}: edition {CURRENT_EDITION} already")
        return
    _show(before.decode(), after.decode(), file)
    if dry_run:
        return
    if not sure and not _agreed(file):
        click.echo("nothing was written")
        raise click.exceptions.Exit(1)
    _write(file, before, after)
    click.echo(f"{file}: now edition {CURRENT_EDITION}")


def _show(before: str, after: str, file: Path) -> None:
    from difflib import unified_diff

    lines = unified_diff(
        before.splitlines(), after.splitlines(), f"{file}", f"{file} (new)", lineterm=""
    )
    for line in lines:
        colour = {"+": "green", "-": "red"}.get(line[:1])
        click.echo(click.style(line, fg=colour))


def _agreed(file: Path) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError(f"{file}: nothing was written; --yes writes it, --dry-run shows it")
    return click.confirm("write it?")


def _write(file: Path, before: bytes, after: bytes) -> None:
    """Replace a file whole, keeping its mode; a link keeps pointing at it."""
    from kernel_builder.errors import ProjectError, StorageError
    from kernel_spec.whole_file import write_whole

    place = file.resolve()
    try:
        if place.read_bytes() != before:
            raise ProjectError(f"{file}: it has changed meanwhile; nothing was written, try again")
        write_whole(place, after, mode=place.stat().st_mode & 0o777)
    except OSError as err:
        raise StorageError(f"{file}: cannot be written ({err.strerror})") from err
