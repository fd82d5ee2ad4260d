"""What a commit changed, told in words, since a listing holds no message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from kernel_hub.service.catalogue import Catalogue
from kernel_hub.service.snapshot import Entry, Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """A commit for display: its id, a line that says what it changed, and its time in UTC."""

    id: str
    title: str
    time: datetime


def describe(catalogue: Catalogue, snapshot: Snapshot) -> Commit:
    """Describe a commit by its difference from the one before."""
    time = catalogue.commit_time(snapshot)
    parent = catalogue.find_parent(snapshot)
    if parent is None and snapshot.parent is not None:
        title = f"Hold {_files(len(snapshot.stored))}; the commit before is gone"
        return Commit(id=snapshot.commit, title=title, time=time)
    before = {} if parent is None else parent.stored
    after = snapshot.stored
    counts = {
        "Add": len(after.keys() - before.keys()),
        "Change": sum(before[path].oid != after[path].oid for path in after.keys() & before.keys()),
        "Delete": len(before.keys() - after.keys()),
    }
    parts = [f"{verb} {_files(count)}" for verb, count in counts.items() if count]
    return Commit(id=snapshot.commit, title=", ".join(parts) or "Change nothing", time=time)


def last_changes(
    catalogue: Catalogue, snapshot: Snapshot, entries: Iterable[Entry]
) -> dict[str, Commit]:
    """Find for each entry's path the newest commit, from this one back, that gave it its content.

    The history is walked once for all of them, no further than the oldest of these commits.
    """
    unchanged = {entry.path: entry.oid for entry in entries}
    changed: dict[str, Commit] = {}
    for ancestor in catalogue.history(snapshot):
        older = catalogue.find_parent(ancestor)
        here = [path for path, oid in unchanged.items() if not _holds(older, path, oid)]
        if here:
            commit = describe(catalogue, ancestor)
            changed |= dict.fromkeys(here, commit)
            unchanged = {path: oid for path, oid in unchanged.items() if path not in changed}
        if not unchanged:
            break
    return changed


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _holds(snapshot: Snapshot | None, path: str, oid: str) -> bool:
    entry = None if snapshot is None else snapshot.entries.get(path)
    return entry is not None and entry.oid == oid
