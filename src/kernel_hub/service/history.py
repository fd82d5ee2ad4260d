"""What a commit changed, told in words, since a listing holds no message."""

from __future__ import annotations

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
    parent = catalogue.find_parent(snapshot)
    before = {} if parent is None else parent.stored
    after = snapshot.stored
    counts = {
        "Add": len(after.keys() - before.keys()),
        "Change": sum(before[path].oid != after[path].oid for path in after.keys() & before.keys()),
        "Delete": len(before.keys() - after.keys()),
    }
    parts = [f"{verb} {count}" for verb, count in counts.items() if count]
    title = f"{', '.join(parts)} file{'s' * (sum(counts.values()) != 1)}" if parts else "No change"
    return Commit(id=snapshot.commit, title=title, time=catalogue.commit_time(snapshot))


def last_change(catalogue: Catalogue, snapshot: Snapshot, entry: Entry) -> Snapshot:
    """Return the newest commit, from this one back, that gave the entry its content."""
    changed = snapshot
    for ancestor in catalogue.history(snapshot):
        older = ancestor.entries.get(entry.path)
        if older is None or older.oid != entry.oid:
            break
        changed = ancestor
    return changed
