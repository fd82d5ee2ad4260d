"""The story of ``kernels cache prune``: what is there, what is to go and why, and its removal.

A plan is made first and can be shown; carrying it out asks again, for each variant, whether a process
uses it. A variant leaves ``variants/`` by one rename, so that no load ever sees a part of it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kernels.cached import (
    CachedCommit,
    CachedVariant,
    list_commits,
    list_documents,
    list_leftovers,
    list_variants,
    require_documents,
)
from kernels.in_use import claim
from kernels.install import sweep_leftover, take_away
from kernels.lockfile import LockFile
from kernels.store import Store

VARIANT, LISTING, DOCUMENT, LEFTOVER = "variant", "listing", "document", "leftover"


class Wish(NamedTuple):
    """What is to go, beside what killed processes left and what is damaged beyond use.

    Attributes:
        unused_for: variants that were not used for so many seconds.
        at_most: the least recently used variants, until those that stay have at most so many bytes.
        unreferenced: commits that no branch or tag names any more, and the variants that only they have.
        locks: what these lock files name stays.
    """

    unused_for: float | None = None
    at_most: int | None = None
    unreferenced: bool = False
    locks: tuple[LockFile, ...] = ()


class Removal(NamedTuple):
    """Something that is to go: what kind of thing, where, how many bytes, and why."""

    kind: str
    path: Path
    size: int
    reason: str
    title: str = ""


class Kept(NamedTuple):
    """A variant that would go, and why it stays."""

    variant: CachedVariant
    reason: str


class Plan(NamedTuple):
    """What is to go and what stays although it would go.

    Attributes:
        removals: in the order of their removal.
        kept: variants that are in use, locked or cannot be read now.
        before: bytes of the variants that are there.
        after: bytes of those that stay.
        over: how many bytes more than was wished for stay.
    """

    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]
    before: int
    after: int
    over: int

    @property
    def size(self) -> int:
        """How many bytes go."""
        return sum(removal.size for removal in self.removals)


class Outcome(NamedTuple):
    """A removal, and why it was not done; empty where it was."""

    removal: Removal
    error: str = ""


def make_plan(store: Store, wish: Wish) -> Plan:
    """Look at the cache and say what is to go; changes nothing.

    Raises:
        CacheError: what says which variants are referred to, or locked, cannot be read.
    """
    if wish.unreferenced or wish.locks:
        require_documents(store)
    commits = list_commits(store)
    variants = list_variants(store, commits)
    used = frozenset(variant.digest for variant in variants if _is_used(variant.place))
    plan = plan_variants(variants, commits, used, wish, now=time.time())
    gone = frozenset(removal.path.name for removal in plan.removals)
    documents = _plan_documents(store, commits, gone, wish) if wish.unreferenced else []
    leftovers = [
        Removal(LEFTOVER, path, size, "a killed process left it")
        for path, size in list_leftovers(store)
    ]
    return plan._replace(removals=(*leftovers, *plan.removals, *documents))


def plan_variants(
    variants: Sequence[CachedVariant],
    commits: Collection[CachedCommit],
    used: Collection[str],
    wish: Wish,
    *,
    now: float,
) -> Plan:
    """Say which variants are to go.

    Args:
        variants: those that are there.
        commits: the listings that are there.
        used: the digests of those that a process uses.
        wish: what is to go.
        now: the time that ages are counted from, in seconds since 1970.
    """
    reasons = _reasons(variants, commits, wish, now)
    why_kept = _reasons_to_keep(variants, commits, used, wish)
    before = sum(variant.size for variant in variants)
    after = before - sum(
        v.size for v in variants if v.digest in reasons and v.digest not in why_kept
    )
    if wish.at_most is not None:
        for variant in sorted(variants, key=lambda v: (v.used, v.digest)):
            if after <= wish.at_most:
                break
            if variant.digest in reasons:
                continue
            reasons[variant.digest] = "others were used more recently"
            after -= 0 if variant.digest in why_kept else variant.size
    return Plan(
        removals=tuple(
            Removal(VARIANT, v.place, v.size, reasons[v.digest], f"{v.title} {v.name}".strip())
            for v in variants
            if v.digest in reasons and v.digest not in why_kept
        ),
        kept=tuple(
            Kept(v, why_kept[v.digest])
            for v in variants
            if v.digest in reasons and v.digest in why_kept
        ),
        before=before,
        after=after,
        over=max(0, after - wish.at_most) if wish.at_most is not None else 0,
    )


def carry_out(store: Store, plan: Plan) -> list[Outcome]:
    """Remove what a plan names, but for variants that a process has begun to use since."""
    return [Outcome(removal, _remove(store, removal)) for removal in plan.removals]


def _reasons(
    variants: Sequence[CachedVariant], commits: Collection[CachedCommit], wish: Wish, now: float
) -> dict[str, str]:
    """Return why each variant is to go, sizes aside, by digest."""
    named = {digest for commit in commits if commit.named for digest in commit.digests}
    known = {digest for commit in commits for digest in commit.digests}
    reasons: dict[str, str] = {}
    for variant in variants:
        days = (now - variant.used) / 86400
        if variant.unread:
            reasons[variant.digest] = variant.unread
        elif not variant.name:
            reasons[variant.digest] = "its manifest is damaged, so nothing can load it"
        elif wish.unused_for is not None and now - variant.used > wish.unused_for:
            reasons[variant.digest] = f"not used for {days:.0f} days"
        elif wish.unreferenced and variant.digest in known - named:
            reasons[variant.digest] = "no branch or tag has it any more"
    return reasons


def _reasons_to_keep(
    variants: Sequence[CachedVariant],
    commits: Collection[CachedCommit],
    used: Collection[str],
    wish: Wish,
) -> dict[str, str]:
    # Whether nothing can load it is not known, nor whether somebody uses it.
    reasons = {
        variant.digest: f"its {variant.unread}; let this user read {variant.place}, or run this as "
        "the user whose it is"
        for variant in variants
        if variant.unread
    }
    reasons |= dict.fromkeys(used, "a running process uses it")
    for lock in wish.locks:
        for entry in lock.lock.kernels:
            digests = {d for c in commits if c.commit == entry.commit for d in c.digests}
            for digest in digests | set(entry.variants.values()):
                reasons.setdefault(digest, f"{lock.path} names it")
    return {v.digest: reasons[v.digest] for v in variants if v.digest in reasons}


def _plan_documents(
    store: Store, commits: Collection[CachedCommit], gone: Collection[str], wish: Wish
) -> list[Removal]:
    """Say which listings and documents are of no use without what is to go."""
    locked = {entry.commit for lock in wish.locks for entry in lock.lock.kernels}
    old = [commit for commit in commits if not commit.named and commit.commit not in locked]
    removals = [
        Removal(
            LISTING,
            commit.path,
            _size(commit.path),
            "no branch or tag names the commit any more",
            f"{commit.repo} at {commit.commit[:12]}",
        )
        for commit in old
    ]
    paths = {commit.path for commit in old}
    needed = {name for c in commits if c.path not in paths for name in c.documents}
    folder = store.folder("variants")
    here = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    for path, name in list_documents(store):
        if name not in needed and name not in here - set(gone):
            removals.append(Removal(DOCUMENT, path, _size(path), "nothing here refers to it"))
    return removals


def _is_used(place: Path) -> bool:
    try:
        with claim(place) as free:
            return not free
    except OSError:
        # Whoever may not open it may not remove it either, and is told so then.
        return False


def _remove(store: Store, removal: Removal) -> str:
    """Remove one thing; return why that was not possible, or an empty text."""
    path = removal.path
    try:
        if removal.kind == VARIANT:
            return _remove_variant(store, path)
        if path.parent == store.folder("tmp"):
            return "" if sweep_leftover(store, path) else "it is in use, or may not be removed"
        path.unlink(missing_ok=True)
        with suppress(OSError):
            # The folder of a repository that nothing is left of.
            path.parent.rmdir()
    except OSError as err:
        return err.strerror or str(err)
    return ""


def _remove_variant(store: Store, place: Path) -> str:
    with claim(place) as free:
        if not free:
            return "a process has begun to use it"
        try:
            aside = take_away(store, place, place.name)
        except FileNotFoundError:
            return ""  # somebody else was faster
    return f"{aside} could not be emptied; a later prune goes on there" if aside.exists() else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
