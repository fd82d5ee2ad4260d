"""A directory hub: repositories as plain folders, each commit immutable.

::

    <root>/<owner>/<name>/
        snapshots/<commit>/{README.md,build/...,benchmarks/...}   the files, unchanged ones hard-linked
        trees/<commit>.json                                       the listing that the commit id hashes
        refs/heads/<name>  refs/tags/<name>                       one line: the commit

Names of refs are percent-encoded. The commit id is the sha1 of the listing's bytes, and the
listing names its parent, so a commit proves its files and its history. Files appear whole or not
at all: the snapshot first, then the listing, then the ref, each by rename.

``<root>/<owner>/<name>/build/`` without ``refs`` is an unversioned repository: its listing is
computed when it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_spec.names import RepoId
from kernel_spec.wire import Refs, TreeFile

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a commit: its parent and its files, sorted by path."""

    parent: str | None
    files: tuple[TreeFile, ...]


@dataclass(frozen=True, slots=True)
class DirectoryHub:
    """A directory hub at a root directory."""

    root: Path


def format_listing(listing: Listing) -> bytes:
    """Write a listing in its canonical form; the same listing gives the same bytes."""
    raise NotImplementedError


def parse_listing(data: bytes) -> Listing:
    """Read a listing.

    Raises:
        FormatError: not of that form, or of a later format.
    """
    raise NotImplementedError


def commit_id(data: bytes) -> str:
    """Return the commit id of a listing's bytes: 40 hex digits."""
    raise NotImplementedError


def repositories(hub: DirectoryHub) -> tuple[RepoId, ...]:
    """List the repositories, sorted."""
    raise NotImplementedError


def has_repository(hub: DirectoryHub, repo: RepoId) -> bool:
    """Say whether the repository is there, versioned or not."""
    raise NotImplementedError


def read_refs(hub: DirectoryHub, repo: RepoId) -> Refs:
    """Read branches and tags, sorted by name; an unversioned repository has one branch, ``main``.

    Raises:
        FormatError: a ref that is not a commit id.
        FileNotFoundError: no such repository.
    """
    raise NotImplementedError


def refs_stamp(hub: DirectoryHub, repo: RepoId) -> tuple[int, ...]:
    """Return a value that changes whenever a ref is written; costs a few ``stat`` calls."""
    raise NotImplementedError


def read_listing(hub: DirectoryHub, repo: RepoId, commit: str) -> Listing:
    """Read and verify the listing of a commit.

    Raises:
        FileNotFoundError: no such commit.
        IntegrityError: the listing's hash is not the commit id.
    """
    raise NotImplementedError


def file_path(hub: DirectoryHub, repo: RepoId, commit: str, path: str) -> Path:
    """Return the place of a file of a commit on disk (it may have been tampered with).

    Raises:
        FormatError: the path would leave the snapshot.
    """
    raise NotImplementedError


def publish(
    hub: DirectoryHub,
    repo: RepoId,
    files: Mapping[str, Path],
    *,
    branch: str,
    parent: str | None,
    tags: Iterable[str] = (),
) -> str:
    """Write one commit that holds exactly ``files`` and move the branch to it.

    Args:
        hub: where to.
        repo: the repository; made if it is not there.
        files: for each POSIX path in the repository, the file to take the bytes from. A file that
            the parent holds with equal bytes is hard-linked.
        branch: the branch to move.
        parent: the commit that the branch must be at; None where the branch must not exist.
        tags: tags to set on the new commit; an existing tag on another commit is an error.

    Returns:
        The new commit; the parent where nothing would change.

    Raises:
        ConflictError: the branch has moved, or a tag exists elsewhere.
        FormatError: a path or ref name that is not allowed.
    """
    raise NotImplementedError
