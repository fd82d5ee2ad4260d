"""``kernels update``: asks the hubs again and brings cached kernels up to date."""

from __future__ import annotations

import json

import click

from kernel_spec.command import say_error, say_note


@click.command(name="update")
@click.argument("repo_ids", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(ctx: click.Context, repo_ids: tuple[str, ...], as_json: bool) -> None:
    """Ask the hubs for REPO_IDS, or for every cached kernel, and download what is new.

    Only branches of which a variant is in the cache are brought up to date. A kernels.lock is not
    changed: see kernels lock --upgrade.
    """
    from kernels.asked import parse_ref
    from kernels.settings import read_settings
    from kernels.updating import update

    repos = tuple(parse_ref(repo_id, None, None).repo for repo_id in repo_ids)
    results = list(update(repos, read_settings()))
    if as_json:
        document = [
            {
                "repo_id": str(done.repo),
                "branch": done.branch or None,
                "before": done.before or None,
                "after": done.after or None,
                "error": str(done.error) if done.error else None,
            }
            for done in results
        ]
        click.echo(json.dumps(document, indent=2))
    for done in results:
        if done.error is not None:
            say_error(f"{done.repo}: {done.error}")
        elif not as_json and done.before == done.after:
            click.echo(f"{done.repo} {done.branch}: up to date at {done.after[:12]}")
        elif not as_json:
            click.echo(f"{done.repo} {done.branch}: {done.before[:12]} -> {done.after[:12]}")
    if not results and not as_json:
        say_note("no kernel of the cache has a branch to bring up to date")
    if any(done.error is not None for done in results):
        ctx.exit(1)
