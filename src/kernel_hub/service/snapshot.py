"""A commit as clients see it: files in git's form, folders with git's tree ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernel_hub.service.lfs import git_form
from kernel_spec.directory import Listing
from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile

ROOT = ""


@dataclass(frozen=True, slots=True)
class TreeDirectory:
    """A folder of a commit: its path and its git tree id."""

    path: str
    oid: str


Entry = TreeFile | TreeDirectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A commit.

    Attributes:
        repo: its repository.
        commit: its id.
        parent: the commit before it, or None.
        stored: each file as the listing has it, by path.
        entries: each file and folder in git's form, by path.
        children: the direct members of each folder, sorted by name; the root is ``""``.
    """

    repo: RepoId
    commit: str
    parent: str | None
    stored: Mapping[str, TreeFile]
    entries: Mapping[str, Entry]
    children: Mapping[str, tuple[Entry, ...]]


def make_snapshot(repo: RepoId, commit: str, listing: Listing) -> Snapshot:
    """Build the view of a commit from its listing."""
    members: dict[str, dict[str, Entry]] = {ROOT: {}}
    for file in map(git_form, listing.files):
        folder = _parent(file.path)
        while folder not in members:
            members[folder] = {}
            folder = _parent(folder)
        members[_parent(file.path)][file.path] = file
    # Deepest first, so that every folder's id is known when its parent is hashed.
    for folder in sorted(members, key=lambda path: path.count("/"), reverse=True):
        if folder != ROOT:
            directory = TreeDirectory(folder, _tree_id(members[folder].values()))
            members[_parent(folder)][folder] = directory
    return Snapshot(
        repo=repo,
        commit=commit,
        parent=listing.parent,
        stored={file.path: file for file in listing.files},
        entries={path: entry for folder in members.values() for path, entry in folder.items()},
        children={
            folder: tuple(entries[path] for path in sorted(entries))
            for folder, entries in members.items()
        },
    )


def walk(snapshot: Snapshot, folder: str) -> Iterator[Entry]:
    """Yield every entry below a folder, each folder before its members."""
    for entry in snapshot.children[folder]:
        yield entry
        if isinstance(entry, TreeDirectory):
            yield from walk(snapshot, entry.path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _tree_id(entries: Iterable[Entry]) -> str:
    """Hash a folder as git does: ``<mode> <name>\\0<20 bytes>``, folders sorted as ``name/``."""
    rows: list[tuple[bytes, bytes]] = []
    for entry in entries:
        name = entry.path.rpartition("/")[2].encode()
        if isinstance(entry, TreeDirectory):
            mode, key = b"40000", name + b"/"
        else:
            mode, key = (b"100755" if entry.executable else b"100644"), name
        rows.append((key, mode + b" " + name + b"\0" + bytes.fromhex(entry.oid)))
    body = b"".join(row for _, row in sorted(rows))
    return hashlib.sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
