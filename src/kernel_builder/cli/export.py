"""``kernel-builder create-pyproject`` and ``build2cmake generate-torch``: files for CMake and pip."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.frame import place_of
from kernel_spec.command import say_note

_PATH = click.Path(path_type=Path)


def _export(
    place: Path, target: Path | None, *, backends: tuple[str, ...], unique: str | None, force: bool
) -> None:
    from kernel_builder.cli.choice import read_backends
    from kernel_builder.config.read import find_project
    from kernel_builder.export.write import export_project

    done = export_project(
        find_project(place),
        target,
        backends=read_backends(backends),
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
    from kernel_builder.export.clean import plan_removal, remove_export

    # A project whose build.toml is broken can be cleaned, too.
    removal = plan_removal(place_of(place) if target is None else target)
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


_DIRECTORY = click.Argument(["place"], metavar="[DIR]", type=_PATH, default=Path())
_BUILD_TOML = click.Argument(["place"], metavar="BUILD_TOML", type=_PATH)
_TARGET = click.Argument(["target"], metavar="[TARGET]", type=_PATH, required=False)
_EXPORT_OPTIONS = (
    click.Option(
        ["-f", "--force"], is_flag=True, help="Replace files that others wrote or changed."
    ),
    click.Option(
        ["--ops-id", "--unique-id", "unique"],
        metavar="TEXT",
        help="Ends the op ids [default: a hash of the sources].",
    ),
    click.Option(
        ["--backend", "backends"], multiple=True, metavar="NAME", help="Only this backend."
    ),
)
_CLEAN_OPTIONS = (
    click.Option(
        ["-f", "--force"], is_flag=True, help="Remove written files that were changed, too."
    ),
    click.Option(
        ["-d", "--dry-run"], is_flag=True, help="Show what would be removed; remove nothing."
    ),
)

create_pyproject = click.Command(
    "create-pyproject",
    params=[_DIRECTORY, _TARGET, *_EXPORT_OPTIONS],
    callback=_export,
    help="Write what pip and CMake build DIR with, into TARGET (DIR itself).\n\n"
    "CMakeLists.txt, pyproject.toml, setup.py and what they need. Then: pip install "
    "--no-build-isolation -e DIR. Another TARGET also gets copies of the sources.",
)
generate_torch = click.Command(
    "generate-torch",
    params=[_BUILD_TOML, _TARGET, *_EXPORT_OPTIONS],
    callback=_export,
    help="Write what pip and CMake build a project with, into TARGET (where BUILD_TOML is).\n\n"
    "CMakeLists.txt, pyproject.toml, setup.py and what they need. Then: pip install "
    "--no-build-isolation -e TARGET. Another TARGET also gets copies of the sources.",
)
clean_pyproject = click.Command(
    "clean-pyproject",
    params=[_DIRECTORY, _TARGET, *_CLEAN_OPTIONS],
    callback=_clean,
    help="Remove what create-pyproject wrote into TARGET (DIR), and what was built with it.",
)
clean = click.Command(
    "clean",
    params=[_BUILD_TOML, _TARGET, *_CLEAN_OPTIONS],
    callback=_clean,
    help="Remove what generate-torch wrote into TARGET, and what was built with it.",
)
