"""``kernel-builder fill-card``: the card as it will stand on the hub."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.frame import project_argument


@click.command("fill-card")
@project_argument
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--repo-id", metavar="OWNER/NAME", help="[default: general.hub.repo-id]")
def fill_card(directory: Path, out: Path | None, repo_id: str | None) -> None:
    """Fill in DIR/CARD.md as upload does, and write it to OUT (the terminal)."""
    from kernel_builder.card import fill_card as fill
    from kernel_builder.config.read import find_project
    from kernel_builder.errors import StorageError
    from kernel_spec.whole_file import write_whole

    text = fill(find_project(directory), repo_id=repo_id)
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        write_whole(out, text.encode())
    except OSError as err:
        raise StorageError(f"{out}: cannot be written ({err.strerror})") from err
    click.echo(str(out))
