"""``kernel-builder check-config`` and ``build2cmake validate``: every fault of a ``build.toml``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from kernel_builder.cli.frame import project_argument


@click.command("check-config")
@project_argument
def check_config(directory: Path) -> None:
    """Check DIR/build.toml: one line for each fault, and exit code 2; else "ok"."""
    _check(directory)


@click.command("validate")
@click.argument("build_toml", type=click.Path(path_type=Path))
def validate(build_toml: Path) -> None:
    """Check BUILD_TOML: one line for each fault, and exit code 2; else "ok"."""
    _check(build_toml)


def _check(place: Path) -> None:
    from kernel_builder.config.read import find_project, read_build
    from kernel_builder.errors import ConfigError, format_fault

    try:
        build = read_build(place)
    except ConfigError as err:
        click.echo(str(err))
        raise click.exceptions.Exit(err.exit_code) from None
    file = find_project(place) / "build.toml"
    for warning in build.warnings:
        click.echo(f"{file}: warning: {warning.replace('-', ' ')}", err=True)
    for doubt in build.doubts:
        click.echo(
            format_fault(f"{file}", replace(doubt, message=f"warning: {doubt.message}")), err=True
        )
    backends = ", ".join(backend.value for backend in build.general.backends)
    click.echo(f"{file}: ok (edition {build.edition}; {backends})")
