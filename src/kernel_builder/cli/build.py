"""``kernel-builder build``: compile, check and package the variants of a project."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernel_builder.cli.choice import Choice, apply_choice, choice_options
from kernel_builder.cli.frame import project_argument
from kernel_builder.cli.inputs import input_options, read_input_settings


@click.command("build")
@project_argument
@choice_options
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Compilers at once [default: what fits]."
)
@input_options
@click.option("--force", is_flag=True, help="Build even what is up to date.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report to this file, too; - is the standard output, without the table.",
)
def build(
    directory: Path,
    *,
    choice: Choice,
    jobs: int | None,
    sources: tuple[str, ...],
    sandbox: str | None,
    locked: bool,
    force: bool,
    json_file: Path | None,
) -> None:
    """Build every variant of DIR that can be built here, into DIR/build."""
    from kernel_builder.config.read import find_project
    from kernel_builder.pipeline import build_project
    from kernel_builder.progress import open_reporter
    from kernel_builder.report import format_report, write_report

    settings = read_input_settings(sandbox=sandbox, sources=sources)
    settings, selection = apply_choice(settings, choice)
    project = find_project(directory)
    with open_reporter(sys.stderr) as reporter:
        report = build_project(
            project,
            selection=selection,
            jobs=jobs,
            force=force,
            locked=locked,
            reporter=reporter,
            settings=settings,
        )
    if json_file is not None:
        write_report(report, json_file)
    if json_file != Path("-"):
        click.echo(format_report(report))
    if report.exit_code:
        raise click.exceptions.Exit(report.exit_code)
