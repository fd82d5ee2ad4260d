"""``kernels lock``: which commit, and which bytes, of every kernel a project uses."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command(name="lock")
@click.argument(
    "project", default=".", type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--upgrade", is_flag=True, help="Move to the newest commits that the project allows.")
@click.option(
    "--form",
    type=click.Choice(["ours", "new", "old"]),
    default="ours",
    help="new, old: as the published client writes it from 0.17 on, and before.",
)
@click.option(
    "--trust-remote-code",
    is_flag=True,
    help="Lock kernels of owners who are no trusted publishers: whoever loads by the lock runs them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    project: Path, upgrade: bool, form: str, trust_remote_code: bool, as_json: bool
) -> None:
    """Write the kernels.lock of PROJECT, for [tool.kernels.dependencies] of its pyproject.toml.

    PROJECT is the current folder where none is given. An entry whose request has not changed keeps
    its commit, unless --upgrade is given; what the kernels themselves need is locked with them.
    """
    from kernels.locking import lock_project
    from kernels.settings import read_settings

    changes = lock_project(
        project, read_settings(), upgrade=upgrade, form=form, consent=trust_remote_code
    )
    if as_json:
        document = [
            {
                "change": change.kind,
                "repo_id": change.entry.repo_id,
                "commit": change.entry.commit,
                "before": change.before,
                "variants": dict(change.entry.variants),
            }
            for change in changes
        ]
        click.echo(
            json.dumps({"lock": str(project / "kernels.lock"), "kernels": document}, indent=2)
        )
        return
    for change in changes:
        click.echo(str(change))
