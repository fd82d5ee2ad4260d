"""``kernels versions``: every version of a kernel, and which of its variants fit this system."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kernel_spec.wire import Ref


@click.command(name="versions")
@click.argument("repo_id")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(repo_id: str, as_json: bool) -> None:
    """List the versions of REPO_ID; always asks the hub, unless offline."""
    from kernel_spec.compat import Accepted, decide
    from kernels.asked import parse_ref
    from kernels.revision import versions_of
    from kernels.settings import read_settings
    from kernels.source import read_refs
    from kernels.system import detect
    from kernels.trees import tree_of, variants_of

    settings = read_settings()
    repo = parse_ref(repo_id, None, None).repo
    hub, refs = read_refs(repo, settings)
    commits = {ref.name: ref.commit for ref in refs.branches}
    branches: dict[str, int | None] = {f"v{number}": number for number in versions_of(refs)}
    if not branches and "main" in commits:
        branches["main"] = None
    tags = [tag.name for tag in sorted(refs.tags, key=_age)]
    system = detect()
    found: list[dict[str, Any]] = []
    for branch, version in branches.items():
        files = tree_of(hub, repo, commits[branch], settings)
        decisions = decide(system, variants_of(files))
        found.append(
            {
                "version": version,
                "branch": branch,
                "commit": commits[branch],
                "variants": [
                    {
                        "name": decision.name,
                        "fits": isinstance(decision, Accepted),
                        "reason": None if isinstance(decision, Accepted) else decision.reason,
                    }
                    for decision in decisions
                ],
            }
        )
    if as_json:
        click.echo(
            json.dumps(
                {"repo_id": repo_id, "hub": hub.url, "versions": found, "tags": tags}, indent=2
            )
        )
        return
    if None in branches.values() or not branches:
        click.echo(f"{repo_id} has no versions (no branch v1, v2, ...).")
    for entry in found:
        name = f"Version {entry['version']}" if entry["version"] is not None else "Branch main"
        click.echo(f"{name}:")
        best = True
        for variant in entry["variants"]:
            if variant["fits"]:
                click.echo(f"  {variant['name']}: fits{', preferred' if best else ''}")
                best = False
            else:
                click.echo(f"  {variant['name']}: {variant['reason']}")
    if tags:
        click.echo(f"Tags: {', '.join(tags)}")


def _age(tag: Ref) -> tuple[int, Any]:
    """Order the tags of versions by number, before all others by name."""
    from packaging.version import Version

    from kernel_spec.names import VERSION_TAG

    if VERSION_TAG.fullmatch(tag.name):
        return (0, Version(tag.name[1:]))
    return (1, tag.name)
