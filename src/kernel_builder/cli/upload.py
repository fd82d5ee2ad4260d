"""``kernel-builder upload``: publish what is built."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernel_builder.cli.frame import place_of, project_argument

if TYPE_CHECKING:
    from kernel_builder.upload import Uploaded, UploadOptions
    from kernel_builder.upload_plan import UploadPlan


@click.command("upload")
@project_argument
@click.option(
    "--hub",
    metavar="URL",
    help="file:///folder or https://... [default: KERNELS_HUB, else HF_ENDPOINT].",
)
@click.option(
    "--repo-id",
    "--repo_id",
    "repo_id",
    metavar="OWNER/NAME",
    help="Where on the hub [default: repo-id of build.toml].",
)
@click.option("--branch", metavar="NAME", help="Branch [default: that of build.toml, or vVERSION].")
@click.option("--tag", metavar="vX.Y.Z", help="Also tag the commit.")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Publish this one of those built; may be repeated [default: all].",
)
@click.option("--private", is_flag=True, help="Make the repository private, if it has to be made.")
@click.option(
    "--create-pr",
    "pull_request",
    is_flag=True,
    help="Ask the owner to take it over, where you may not write.",
)
@click.option(
    "--replace", is_flag=True, help="Replace what is published with other bytes under this version."
)
@click.option("--prune", is_flag=True, help="Delete what is published and not built here.")
@click.option(
    "--with-sources",
    is_flag=True,
    help="Publish the sources, too, below src/: loaders can then build a variant that is missing.",
)
@click.option(
    "--allow-dirty",
    is_flag=True,
    help="Publish though files differ from the last commit: nobody else can then rebuild what is "
    "published, and its metadata names no commit.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, and do not ask.")
@click.option(
    "--output-json",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what came of it to this file, too.",
)
@click.option("-q", "--quiet", is_flag=True, help="Write errors only, and do not ask.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def upload(
    directory: Path,
    *,
    hub: str | None,
    dry_run: bool,
    as_json: bool,
    output_json: Path | None,
    quiet: bool,
    yes: bool,
    **wanted: Any,
) -> None:
    """Publish the variants in DIR/build: one commit on the branch of the version, then the card on main.

    What is published stays: variants are added, and nothing is replaced or deleted unless --replace
    or --prune says so. DIR may also hold built variants without a project.
    """
    from kernel_builder.errors import ProjectError
    from kernel_builder.remote import choose_hub, open_remote
    from kernel_builder.settings import read_settings
    from kernel_builder.upload import UploadOptions, upload
    from kernel_builder.upload_plan import format_upload

    settings = read_settings()
    directory = place_of(directory)
    if not directory.exists():
        raise ProjectError(f"{directory}: no such directory; expected a project or built variants")
    options = UploadOptions(**wanted)
    chosen = choose_hub(
        hub,
        owner=_find_owner(directory, options),
        hubs=settings.hubs,
        default=settings.default_hub,
    )
    is_silent = quiet or as_json

    def confirm(plan: UploadPlan) -> bool:
        if not is_silent:
            click.echo(format_upload(plan))
        if dry_run:
            return False
        asks = not yes and not is_silent and sys.stdin.isatty() and sys.stdout.isatty()
        return not asks or click.confirm("publish?", default=True)

    done = upload(
        directory,
        open_remote(chosen, token_hub=settings.endpoint, cache=settings.cache),
        settings=settings,
        options=options,
        confirm=confirm,
    )
    document = json.dumps(describe(done, is_dry=dry_run), indent=2)
    if output_json is not None:
        _write(output_json, document)
    if as_json:
        click.echo(document)
    elif not quiet:
        click.echo(_format_result(done, is_dry=dry_run))


def _find_owner(directory: Path, options: UploadOptions) -> str:
    """Return who a kernel is published for; an empty text where nothing says so."""
    from kernel_builder.config.model import FILE_NAME
    from kernel_builder.config.read import read_build

    if options.repo_id:
        return options.repo_id.partition("/")[0]
    stated = read_build(directory).general.repo_id if (directory / FILE_NAME).is_file() else None
    return stated.owner if stated else ""


def describe(done: Uploaded, *, is_dry: bool = False) -> dict[str, Any]:
    """Write what came of an upload, for programs.

    ``status`` is ``no_changes``, ``uploaded``, ``pull_request_created``, ``planned`` (of a dry run)
    or ``not_confirmed``.
    """
    from kernel_builder.upload import Status
    from kernel_builder.upload_plan import describe_plan

    plan = describe_plan(done.plan)
    branch = done.plan.branch.branch.name
    is_planned = is_dry and done.status is Status.NOT_CONFIRMED
    return {
        "status": "planned" if is_planned else str(done.status),
        "repo_id": plan.pop("repo_id"),
        "hub": plan.pop("hub"),
        "branch": plan.pop("branch"),
        "commit": done.commit,
        "url": _page(done.plan.url, str(done.plan.repo), branch),
        "pull_requests": [{"branch": name, "url": url} for name, url in done.pull_requests],
        "plan": plan,
    }


def _page(hub: str, repo: str, branch: str) -> str:
    if hub.startswith("file:"):
        return f"{hub}/{repo}"
    return f"{hub}/kernels/{repo}/tree/{branch}"


def _write(place: Path, document: str) -> None:
    from kernel_builder.errors import StorageError

    try:
        place.write_text(document + "\n", encoding="utf-8")
    except OSError as err:
        # The upload is done; only the file that tells of it is missing.
        raise StorageError(f"--output-json {place}: cannot be written ({err.strerror})") from err


def _format_result(done: Uploaded, *, is_dry: bool) -> str:
    from kernel_builder.upload import Status

    plan = done.plan
    where = f"{plan.repo} {plan.branch.branch.name}"
    match done.status:
        case Status.NOT_CONFIRMED:
            return "nothing was published" + (" (--dry-run)" if is_dry else "")
        case Status.NO_CHANGES:
            # A plan that deletes branches was shown, with its notes.
            notes = [] if plan.left_over else [f"note: {note}" for note in plan.notes]
            have = f"nothing to publish: {where} at {plan.url} has this already ({done.commit})"
            kept = [f"note: {path} is published with other bytes" for path in plan.branch.withheld]
            return "\n".join([*notes, *kept, have])
        case Status.PULL_REQUEST_CREATED:
            return "\n".join(f"asked for {name}: {url}" for name, url in done.pull_requests)
        case Status.UPLOADED:
            return f"published {where} at {done.commit}"
