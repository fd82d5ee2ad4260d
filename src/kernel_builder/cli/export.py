"""``kernel-builder create-pyproject`` and ``build2cmake generate-torch``: files for CMake and pip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kernel_builder.cli.frame import project_argument
from kernel_spec.command import say_note

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _target_argument(command: _Command) -> _Command:
    kind = click.Path(path_type=Path)
    return click.argument("target", metavar="[TARGET]", type=kind, required=False)(command)


def _build_toml_argument(command: _Command) -> _Command:
    return click.argument("build_toml", type=click.Path(path_type=Path))(command)


def _export_options(command: _Command) -> _Command:
    command = click.option(
        "--backend", "backends", multiple=True, metavar="NAME", help="Only this backend."
    )(command)
    command = click.option(
        "--ops-id",
        "--unique-id",
        "unique",
        metavar="TEXT",
        help="Ends the op ids [default: a hash of the sources].",
    )(command)
    return click.option(
        "-f", "--force", is_flag=True, help="Replace files that others wrote or changed."
    )(command)


def _clean_options(command: _Command) -> _Command:
    command = click.option(
        "-d", "--dry-run", is_flag=True, help="Show what would be removed; remove nothing."
    )(command)
    return click.option(
        "-f", "--force", is_flag=True, help="Remove written files that were changed, too."
    )(command)


@click.command("create-pyproject")
@project_argument
@_target_argument
@_export_options
def create_pyproject(
    directory: Path,
    target: Path | None,
    backends: tuple[str, ...],
    unique: str | None,
    force: bool,
) -> None:
    """Write what pip and CMake build DIR with, into TARGET (DIR itself).

    CMakeLists.txt, pyproject.toml, setup.py and what they need. Then: pip install
    --no-build-isolation -e DIR. Another TARGET also gets copies of the sources.
    """
    _export(directory, target, backends, unique, force=force)


@click.command("generate-torch")
@_build_toml_argument
@_target_argument
@_export_options
def generate_torch(
    build_toml: Path,
    target: Path | None,
    backends: tuple[str, ...],
    unique: str | None,
    force: bool,
) -> None:
    """Write what pip and CMake build a project with, into TARGET (where BUILD_TOML is).

    CMakeLists.txt, pyproject.toml, setup.py and what they need. Then: pip install
    --no-build-isolation -e TARGET. Another TARGET also gets copies of the sources.
    """
    _export(build_toml, target, backends, unique, force=force)


@click.command("clean-pyproject")
@project_argument
@_target_argument
@_clean_options
def clean_pyproject(directory: Path, target: Path | None, dry_run: bool, force: bool) -> None:
    """Remove what create-pyproject wrote into TARGET (DIR), and what was built with it."""
    _clean(directory, target, dry_run=dry_run, force=force)


@click.command("clean")
@_build_toml_argument
@_target_argument
@_clean_options
def clean(build_toml: Path, target: Path | None, dry_run: bool, force: bool) -> None:
    """Remove what generate-torch wrote into TARGET, and what was built with it."""
    _clean(build_toml, target, dry_run=dry_run, force=force)


def _export(
    place: Path, target: Path | None, backends: tuple[str, ...], unique: str | None, *, force: bool
) -> None:
    from kernel_builder.cli.making import read_selection
    from kernel_builder.config.read import find_project
    from kernel_builder.export.write import export_project

    done = export_project(
        find_project(place),
        target,
        backends=read_selection(backends, ()).backends,
        unique=unique,
        force=force,
    )
    for path in done.files:
        click.echo(str(done.target / path))
    for note in done.notes:
        say_note(note)
    names = ", ".join(kind.value for kind in done.backends)
    click.echo(f"\n{names}; next: pip install --no-build-isolation -e {done.target}")


def _clean(place: Path, target: Path | None, *, dry_run: bool, force: bool) -> None:
    from kernel_builder.config.model import FILE_NAME
    from kernel_builder.export.clean import plan_removal, remove_export

    # A project whose build.toml is broken can be cleaned, too.
    project = place.parent if place.name == FILE_NAME else place
    removal = plan_removal(target if target is not None else project)
    if not removal.paths:
        click.echo(f"{removal.target}: nothing here was written by kernel-builder")
        return
    if dry_run:
        for path in removal.paths:
            click.echo(f"would remove {removal.target / path}")
        for path in removal.changed:
            word = "would remove" if force else "would refuse, for"
            click.echo(f"{word} {removal.target / path}, which was changed since")
        return
    for path in remove_export(removal, force=force):
        click.echo(f"removed {removal.target / path}")
