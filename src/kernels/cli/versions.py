"""``kernels versions``: every version of a kernel, and which of its variants fit this system."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kernel_spec.wire import Ref

if TYPE_CHECKING:
    from kernel_spec.names import RepoId
    from kernel_spec.wire import Refs
    from kernels.hub import Hub
    from kernels.settings import Settings


@click.command(name="versions")
@click.argument("repo_id")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(repo_id: str, as_json: bool) -> None:
    """List the versions of REPO_ID; always asks the hub, unless offline."""
    from kernels.asked import parse_ref
    from kernels.settings import read_settings
    from kernels.source import read_refs

    settings = read_settings()
    repo = parse_ref(repo_id, None, None).repo
    hub, refs = read_refs(repo, settings)
    found = [_judge(branch, hub, repo, settings) for branch in _branches(refs)]
    tags = [tag.name for tag in sorted(refs.tags, key=_age)]
    if as_json:
        document = {"repo_id": repo_id, "hub": hub.url, "versions": found, "tags": tags}
        click.echo(json.dumps(document, indent=2))
        return
    if all(entry["version"] is None for entry in found):
        click.echo(f"{repo_id} has no versions (no branch v1, v2, ...).")
    for entry in found:
        _show(entry)
    if tags:
        click.echo(f"Tags: {', '.join(tags)}")


def _branches(refs: Refs) -> list[Ref]:
    """Return the branches of the versions in order; main where there is none."""
    from kernels.revision import versions_of

    names = [f"v{number}" for number in versions_of(refs)] or ["main"]
    commits = dict(refs.branches)
    return [Ref(name, commits[name]) for name in names if name in commits]


def _judge(branch: Ref, hub: Hub, repo: RepoId, settings: Settings) -> dict[str, Any]:
    from kernel_spec.compat import Accepted, decide
    from kernel_spec.names import version_of_branch
    from kernels.system import detect
    from kernels.trees import tree_of, variants_of

    decisions = decide(detect(), variants_of(tree_of(hub, repo, branch.commit, settings)))
    return {
        "version": version_of_branch(branch.name),
        "branch": branch.name,
        "commit": branch.commit,
        "variants": [
            {
                "name": decision.name,
                "fits": isinstance(decision, Accepted),
                "reason": None if isinstance(decision, Accepted) else decision.reason,
            }
            for decision in decisions
        ],
    }


def _show(entry: dict[str, Any]) -> None:
    version = entry["version"]
    click.echo("Branch main:" if version is None else f"Version {version}:")
    # The best one that fits comes first.
    for index, variant in enumerate(entry["variants"]):
        preferred = "" if index else ", preferred"
        verdict = f"fits{preferred}" if variant["fits"] else variant["reason"]
        click.echo(f"  {variant['name']}: {verdict}")


def _age(tag: Ref) -> tuple[int, Any]:
    """Order the tags of versions by number, before all others by name."""
    from packaging.version import Version

    from kernel_spec.names import VERSION_TAG

    if VERSION_TAG.fullmatch(tag.name):
        return (0, Version(tag.name[1:]))
    return (1, tag.name)
