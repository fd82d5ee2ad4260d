"""``kernels cache``: what is in the cache, and whether every byte of it is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.group(name="cache")
def command() -> None:
    """Look at, and verify, the cache."""


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """List the installed variants."""
    found = [_describe(place) for place in _places()]
    if as_json:
        click.echo(json.dumps({"cache": str(_cache()), "variants": found}, indent=2))
        return
    for entry in found:
        size = f"{entry['bytes'] / 1e6:.1f} MB"
        click.echo(f"{entry['digest'][:12]}  {size:>10}  {entry['kernel']}  {entry['variant']}")
    total = sum(entry["bytes"] for entry in found) / 1e6
    click.echo(f"{len(found)} variants, {total:.1f} MB in {_cache()}")


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
        click.echo("kernels: the next load with the network on fetches them again", err=True)
        ctx.exit(1)


def _cache() -> Path:
    from kernels.settings import read_settings

    return read_settings().cache


def _places() -> list[Path]:
    from kernels.store import Store

    folder = Store(_cache()).folder("variants")
    return sorted(place for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else []


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
