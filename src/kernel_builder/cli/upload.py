"""``kernel-builder upload``: publish what is built."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.frame import project_argument

if TYPE_CHECKING:
    from kernel_builder.upload import UploadPlan


@click.command("upload")
@project_argument
@click.option("--hub", metavar="URL", help="file:///path or https://... [default: KERNELS_HUB].")
@click.option(
    "--repo-id",
    "--repo_id",
    "repo_id",
    metavar="OWNER/NAME",
    help="Where on the hub [default: repo-id of build.toml].",
)
@click.option("--tag", metavar="vX.Y.Z", help="Also tag the commit.")
@click.option("--prune", is_flag=True, help="Delete published variants that are not built here.")
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="Publish though files differ from the last commit: nobody else can then rebuild what is "
    "published, and its metadata names no commit.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def upload(
    directory: Path,
    *,
    hub: str | None,
    repo_id: str | None,
    tag: str | None,
    prune: bool,
    allow_dirty: bool,
    yes: bool,
) -> None:
    """Publish the variants in DIR/build: one commit on the branch of the version."""
    from kernel_builder.config.read import find_project, read_build
    from kernel_builder.remote import choose_hub, open_remote
    from kernel_builder.settings import read_settings
    from kernel_builder.upload import format_upload, upload

    settings = read_settings()
    project = find_project(directory)
    if hub is None:
        stated = read_build(project).general.repo_id
        owner = repo_id.partition("/")[0] if repo_id else stated.owner if stated else ""
        hub = choose_hub(settings.hubs, owner, settings.endpoint)

    def confirm(plan: UploadPlan) -> bool:
        click.echo(format_upload(plan))
        asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
        return not asks or click.confirm("publish?", default=True)

    done = upload(
        project,
        open_remote(hub, token_hub=settings.endpoint),
        settings=settings,
        repo_id=repo_id,
        tag=tag,
        prune=prune,
        allow_dirty=allow_dirty,
        confirm=confirm,
    )
    branch = done.plan.branch.branch.name
    if done.commit is None:
        click.echo("nothing was published")
    elif done.changed:
        click.echo(f"published {done.plan.repo} {branch} at {done.commit}")
    else:
        click.echo(
            f"nothing to publish: {done.plan.repo} {branch} at {done.plan.url} "
            f"has this already ({done.commit})"
        )
