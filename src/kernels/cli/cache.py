"""``kernels cache``: what is in the cache, and whether every byte of it is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from kernel_spec.command import say_note


@click.group(name="cache")
def command() -> None:
    """Look at, and verify, the cache."""


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """List the installed variants."""
    owners = _repositories()
    found = [
        {**_describe(place), "repositories": owners.get(place.name, [])} for place in _places()
    ]
    if as_json:
        click.echo(json.dumps({"cache": str(_cache()), "variants": found}, indent=2))
        return
    for entry in found:
        size = format_size(entry["bytes"])
        names = ", ".join(entry["repositories"]) or f"?/{entry['kernel']}"
        click.echo(f"{entry['digest'][:12]}  {size:>10}  {names}  {entry['variant']}")
    total = format_size(sum(entry["bytes"] for entry in found))
    click.echo(f"{len(found)} variants, {total} in {_cache()}")


def format_size(size: int) -> str:
    """Write a number of bytes in the unit that leaves one to three digits before the point."""
    amount, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


@command.command(name="verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def verify(ctx: click.Context, as_json: bool) -> None:
    """Hash every file of every installed variant; exits with 1 where one is damaged."""
    from kernels.verify import Damage, verify_bytes

    results: list[dict[str, Any]] = []
    for place in _places():
        match verify_bytes(place):
            case Damage(faults=faults):
                results.append({"digest": place.name, "ok": False, "faults": list(faults)})
            case None:
                results.append({"digest": place.name, "ok": True, "faults": []})
    damaged = [entry for entry in results if not entry["ok"]]
    if as_json:
        click.echo(json.dumps({"cache": str(_cache()), "variants": results}, indent=2))
    else:
        for entry in damaged:
            click.echo(f"{entry['digest']}: damaged")
            for fault in entry["faults"]:
                click.echo(f"  {fault}")
        click.echo(f"{len(results)} variants verified, {len(damaged)} damaged")
    if damaged:
        say_note("the next load with the network on fetches them again")
        ctx.exit(1)


def _cache() -> Path:
    from kernels.settings import read_settings

    return read_settings().cache


def _places() -> list[Path]:
    from kernels.store import Store

    folder = Store(_cache()).folder("variants")
    return sorted(place for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else []


def _repositories() -> dict[str, list[str]]:
    """Return the repositories that the cache knows each variant from, by digest."""
    from kernel_spec.names import RepoId
    from kernels.source import variants_of
    from kernels.store import Store, find_digest, read_tree_file

    store = Store(_cache())
    trees = store.folder("trees")
    found: dict[str, set[str]] = {}
    for path in trees.glob("*/*/*/*.json"):
        repo = RepoId(*path.relative_to(trees).parts[1:3])
        for files in variants_of(read_tree_file(path) or ()).values():
            if (digest := find_digest(store, files)) is not None:
                found.setdefault(digest, set()).add(str(repo))
    return {digest: sorted(names) for digest, names in found.items()}


def _describe(place: Path) -> dict[str, Any]:
    from kernels.verify import read_manifest

    manifest = read_manifest(place)
    if manifest is None:
        return {"digest": place.name, "variant": "?", "kernel": "(damaged)", "bytes": 0}
    return {
        "digest": place.name,
        "variant": manifest.variant,
        "kernel": _name(place / manifest.variant / "metadata.json"),
        "bytes": sum(size for size, _ in manifest.files.values()),
        "path": str(place / manifest.variant),
    }


def _name(path: Path) -> str:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return "?"
    return str(document.get("name", "?")) if isinstance(document, dict) else "?"
