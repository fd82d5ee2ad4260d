"""``kernel-builder check``: whether variants keep the rules of the format."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.frame import project_argument


@click.command("check")
@project_argument
def check(directory: Path) -> None:
    """Check the variants of DIR: a project, its build directory, or one variant."""
    from kernel_builder.check.variant import check_variant, find_variants
    from kernel_builder.config.model import FILE_NAME

    place = directory.parent if directory.name == FILE_NAME else directory
    failed = False
    for variant in find_variants(place):
        findings = check_variant(variant.resolve())
        failed = failed or bool(findings)
        for finding in findings:
            click.echo(f"{variant.resolve().name}: {finding}")
        if not findings:
            click.echo(f"{variant.resolve().name}: ok")
    if failed:
        raise click.exceptions.Exit(1)
