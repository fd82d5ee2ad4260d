"""``kernels cache``: what is in the cache, whether every byte of it is right, and what may go."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernel_spec.amounts import format_count, format_size
from kernel_spec.command import say_error, say_note

if TYPE_CHECKING:
    from kernels.pruning import Outcome, Plan
    from kernels.settings import Settings
    from kernels.store import Store

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([hdw])", re.IGNORECASE)
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 604800.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

_ADVICE = {
    "damaged": "the next load with the network on fetches them again",
    "unreadable": "what cannot be read may be right: let this user read it, or run this as the user whose it is",
}


def read_duration(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Read a time as in ``12h``, ``30d`` or ``2w``; return seconds."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        expected = "expected hours, days or weeks, as in 12h, 30d or 2w"
        raise click.BadParameter(f"{expected}, found {text!r}.", ctx, param)
    return float(match[1]) * _SECONDS[match[2].lower()]


def read_amount(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Read a size as in ``500MB``, ``10GB`` or ``2GiB``; return bytes."""
    if text is None:
        return None
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        expected = "expected a size as in 500MB, 10GB or 2GiB"
        raise click.BadParameter(f"{expected}, found {text!r}.", ctx, param)
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()])


@click.group(name="cache")
def command() -> None:
    """Look at the cache, verify it, and remove what is no longer used."""


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """List the installed variants, and when each was last used."""
    from kernels.cached import knows_use, list_commits, list_variants

    store = _store()
    found = list_variants(store, list_commits(store))
    if as_json:
        entries = [
            {
                "digest": variant.digest,
                "variant": variant.name or "?",
                "kernel": variant.kernel,
                "bytes": variant.size,
                "used": _format_time(variant.used),
                "path": str(variant.place / variant.name) if variant.name else str(variant.place),
                "repositories": list(variant.repositories),
            }
            for variant in found
        ]
        click.echo(json.dumps({"cache": str(store.root), "variants": entries}, indent=2))
        return
    for variant in found:
        size, day = format_size(variant.size), _format_time(variant.used)[:10]
        click.echo(
            f"{variant.digest[:12]}  {size:>10}  {day}  {variant.title}  {variant.name or '?'}"
        )
    total = format_size(sum(variant.size for variant in found))
    click.echo(f"{format_count(len(found), 'variant')}, {total} in {store.root}")
    if found and not knows_use(store):
        say_note(
            "this file system does not keep when files are read; the days are those of the installs"
        )


@command.command(name="verify")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def verify(ctx: click.Context, as_json: bool) -> None:
    """Hash every file of every installed variant; exits with 1 where one is damaged or cannot be read."""
    from kernels.verify import verify_bytes

    store = _store()
    folder = store.folder("variants")
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    found = {place.name: verify_bytes(place) if place.is_dir() else None for place in places}
    bad = {digest: damage for digest, damage in found.items() if damage is not None}
    if as_json:
        entries = [
            {
                "digest": digest,
                "ok": damage is None,
                "faults": list(damage.faults if damage else ()),
            }
            for digest, damage in found.items()
        ]
        click.echo(json.dumps({"cache": str(store.root), "variants": entries}, indent=2))
    else:
        for digest, damage in bad.items():
            click.echo("\n  ".join([f"{digest}: {damage.kind}", *damage.faults]))
        unread = sum(damage.unread for damage in bad.values())
        told = f"{format_count(len(found), 'variant')} verified, {len(bad) - unread} damaged"
        click.echo(f"{told}, {unread} unreadable" if unread else told)
    for kind, advice in _ADVICE.items():
        if any(damage.kind == kind for damage in bad.values()):
            say_error(advice)
    if bad:
        ctx.exit(1)


@command.command(name="prune")
@click.option(
    "--unused-for",
    callback=read_duration,
    metavar="TIME",
    help="Variants not used for so long: 12h, 30d, 2w.",
)
@click.option(
    "--max-size",
    callback=read_amount,
    metavar="SIZE",
    help="The least recently used, until at most so much stays: 500MB, 10GB.",
)
@click.option("--unreferenced", is_flag=True, help="What no branch or tag has any more.")
@click.option(
    "--keep-lock",
    "keep_locks",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep what a kernels.lock, or that of a project's folder, names; KERNELS_LOCK is kept in any case.",
)
@click.option(
    "--yes", is_flag=True, help="Remove it; without this the plan is shown and nothing is removed."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def prune(
    ctx: click.Context,
    *,
    unused_for: float | None,
    max_size: int | None,
    unreferenced: bool,
    keep_locks: tuple[Path, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Show what would be removed from the cache, and with --yes remove it.

    What killed processes left always goes. A variant that a running process uses stays, and so do
    installs that are under way. Exits with 1 where something could not be removed, or more than
    --max-size stays.
    """
    from kernels.cached import knows_use
    from kernels.pruning import Wish, carry_out, make_plan
    from kernels.settings import read_settings

    settings = read_settings()
    store = _store()
    wish = Wish(unused_for, max_size, unreferenced, _read_locks(settings, keep_locks))
    plan = make_plan(store, wish)
    outcomes = carry_out(store, plan) if yes else []
    if as_json:
        click.echo(json.dumps(_document(store, plan, outcomes, done=yes), indent=2))
    else:
        _show(store, plan, outcomes, done=yes)
    if (unused_for is not None or max_size is not None) and not knows_use(store):
        say_note(
            "this file system does not keep when files are read; the time of its install counts for each variant"
        )
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        say_error(f"{outcome.removal.path}: not removed: {outcome.error}")
    if plan.over:
        say_error(
            f"{format_size(plan.after)} stay, {format_size(plan.over)} more than --max-size: they are in use or locked"
        )
    if failed or plan.over:
        ctx.exit(1)


def _show(store: Store, plan: Plan, outcomes: Sequence[Outcome], *, done: bool) -> None:
    failed = {outcome.removal.path for outcome in outcomes if outcome.error}
    verb = "removed" if done else "remove"
    for removal in plan.removals:
        if removal.path not in failed:
            what = removal.title or removal.path.relative_to(store.folder("")).as_posix()
            click.echo(
                f"{verb:7}  {format_size(removal.size):>9}  {removal.kind}  {what}: {removal.reason}"
            )
    for kept in plan.kept:
        size = format_size(kept.variant.size)
        click.echo(
            f"{'keep':7}  {size:>9}  variant  {kept.variant.title} {kept.variant.name}: {kept.reason}"
        )
    gone = [removal for removal in plan.removals if removal.path not in failed]
    total = format_size(sum(removal.size for removal in gone))
    if not plan.removals:
        click.echo(f"nothing to remove from {store.root}")
    elif done:
        click.echo(f"{len(gone)} removed, {total}, from {store.root}")
    else:
        told = f"{len(gone)} to remove, {total}, from {store.root}"
        click.echo(f"{told}. Nothing was removed: repeat it with --yes.")


def _document(
    store: Store, plan: Plan, outcomes: Sequence[Outcome], *, done: bool
) -> dict[str, Any]:
    errors = {outcome.removal.path: outcome.error for outcome in outcomes}
    return {
        "cache": str(store.root),
        "done": done,
        "bytes_before": plan.before,
        "bytes_after": plan.after,
        "removals": [
            {
                "kind": removal.kind,
                "path": str(removal.path),
                "title": removal.title,
                "bytes": removal.size,
                "reason": removal.reason,
                "error": errors.get(removal.path) or None,
            }
            for removal in plan.removals
        ],
        "kept": [
            {"digest": kept.variant.digest, "bytes": kept.variant.size, "reason": kept.reason}
            for kept in plan.kept
        ],
    }


def _read_locks(settings: Settings, paths: Sequence[Path]) -> tuple[Any, ...]:
    from kernel_spec.lock import FILE_NAME
    from kernels.lockfile import read_lock

    named = [path / FILE_NAME if path.is_dir() else path for path in paths]
    return tuple(map(read_lock, [*named, *([settings.lock] if settings.lock else [])]))


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _store() -> Store:
    from kernels.cached import require_readable
    from kernels.settings import read_settings
    from kernels.store import Store

    store = Store(read_settings().cache)
    require_readable(store)
    return store
