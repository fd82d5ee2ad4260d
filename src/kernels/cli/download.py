"""``kernels download``: brings what a project's lock names into the cache."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kernel_spec.command import say_error, say_warning


@click.command(name="download")
@click.argument("project", default=".", type=click.Path(exists=True, path_type=Path))
@click.option("--all-variants", is_flag=True, help="For every system, not only for this one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(ctx: click.Context, project: Path, all_variants: bool, as_json: bool) -> None:
    """Download every kernel of the kernels.lock of PROJECT, a folder or a lock file; run none.

    Exits with 1 where there is no lock, or a kernel of it cannot be had.
    """
    from kernel_spec.lock import FILE_NAME
    from kernels.lockfile import read_lock
    from kernels.prefetch import doubts, prefetch
    from kernels.settings import read_settings

    settings = read_settings()
    lockfile = read_lock(project / FILE_NAME if project.is_dir() else project)
    results = []
    for fetched in prefetch(lockfile, settings, all_variants=all_variants):
        results.append(fetched)
        if not as_json and fetched.place is not None:
            verb = "downloaded" if fetched.downloaded else "already here"
            commit = fetched.entry.commit[:12]
            click.echo(f"{fetched.entry.repo_id} {fetched.variant} (commit {commit}): {verb}")
    failed = [fetched for fetched in results if fetched.error is not None]
    if as_json:
        document = [
            {
                "repo_id": fetched.entry.repo_id,
                "commit": fetched.entry.commit,
                "variant": fetched.variant or None,
                "path": str(fetched.place.path) if fetched.place else None,
                "digest": fetched.place.digest if fetched.place else None,
                "downloaded": fetched.downloaded,
                "error": str(fetched.error) if fetched.error else None,
            }
            for fetched in results
        ]
        click.echo(json.dumps({"lock": str(lockfile.path), "kernels": document}, indent=2))
    for fetched in failed:
        say_error(str(fetched.error))
    if failed:
        say_error(f"{len(failed)} of {len(results)} are not here")
        ctx.exit(1)
    for doubt in doubts(lockfile, settings):
        say_warning(f"it is here, but will be refused when it is loaded: {doubt}")
