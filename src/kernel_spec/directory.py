"""A directory hub: repositories as plain folders, each commit immutable.

::

    <root>/<owner>/<name>/
        snapshots/<commit>/{README.md,build/...,benchmarks/...}   the files, unchanged ones hard-linked
        trees/<commit>.json                                       the listing that the commit id hashes
        refs/heads/<name>  refs/tags/<name>                       one line: the commit
        refs/pr/<number>                                          the same, of a change that is proposed

Names of refs are percent-encoded. The commit id is the sha1 of the listing's bytes, and the
listing names its parent, so a commit proves its files and its history.

``<root>/<owner>/<name>/build/`` without ``refs`` is an unversioned repository: its listing is
computed when it is read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kernel_spec import unversioned
from kernel_spec.document import read_plain
from kernel_spec.errors import FormatError, IntegrityError
from kernel_spec.listing import (
    COMMIT_ID,
    FORMAT,
    Listing,
    commit_id,
    format_listing,
    parse_listing,
)
from kernel_spec.names import (
    RepoId,
    parse_repo_id,
    parse_safe_path,
)
from kernel_spec.wire import Ref, Refs

__all__ = [
    "FORMAT",
    "DirectoryHub",
    "Listing",
    "branch_file",
    "commit_id",
    "file_path",
    "find_branch",
    "format_listing",
    "has_repository",
    "parse_listing",
    "read_listing",
    "read_refs",
    "refs_stamp",
    "repositories",
]


# A change that is proposed is a branch that readers of branches do not see.
PROPOSAL = re.compile(r"refs/pr/([1-9][0-9]{0,8})", re.ASCII)


@dataclass(frozen=True, slots=True)
class DirectoryHub:
    """A directory hub at a root directory."""

    root: Path


def repository_path(hub: DirectoryHub, repo: RepoId) -> Path:
    """Return the folder of a repository, which need not be there."""
    return hub.root / repo.owner / repo.name


def repositories(hub: DirectoryHub, owner: str | None = None) -> tuple[RepoId, ...]:
    """List the repositories, of one owner or of all, sorted."""
    found = []
    for each in _folders(hub.root) if owner is None else [owner]:
        for name in _folders(hub.root / each):
            try:
                repo = parse_repo_id(f"{each}/{name}")
            except FormatError:
                continue
            if has_repository(hub, repo):
                found.append(repo)
    return tuple(sorted(found))


def _folders(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []


def folder_names(folder: Path, wanted: str) -> list[str]:
    """List the folders in a folder; where that is not allowed, the wanted one if it is there."""
    try:
        return _folders(folder)
    except PermissionError:
        return [wanted] if (folder / wanted).is_dir() else []


def has_repository(hub: DirectoryHub, repo: RepoId) -> bool:
    """Say whether the repository is there, versioned or not."""
    folder = repository_path(hub, repo)
    return is_versioned(folder) or (folder / "build").is_dir()


def is_spelt_so(hub: DirectoryHub, repo: RepoId) -> bool:
    """Say whether the folders of a repository have these very names: a file system may take others for them."""
    owner = hub.root / repo.owner
    return repo.owner in folder_names(hub.root, repo.owner) and repo.name in folder_names(
        owner, repo.name
    )


def is_versioned(folder: Path) -> bool:
    """Say whether the folder of a repository has refs."""
    return (folder / "refs").is_dir()


def read_refs(hub: DirectoryHub, repo: RepoId) -> Refs:
    """Read branches and tags, sorted by name; an unversioned repository has one branch, ``main``.

    Raises:
        FormatError: a ref that is not a commit id.
        FileNotFoundError: no such repository.
    """
    folder = repository_path(hub, repo)
    try:
        branches = _read_ref_folder(f"{folder}/refs/heads")
    except FileNotFoundError:
        commit = commit_id(format_listing(unversioned.compute_listing(folder)))
        return Refs((Ref(unversioned.BRANCH, commit),), ())
    try:
        return Refs(branches, _read_ref_folder(f"{folder}/refs/tags"))
    except FileNotFoundError:
        return Refs(branches, ())


def _read_ref_folder(folder: str) -> tuple[Ref, ...]:
    refs = []
    with os.scandir(folder) as entries:
        # No ref begins with a dot; what does is left over from a network file system.
        names = [entry.name for entry in entries if entry.name[0] != "."]
    for name in names:
        try:
            refs.append(Ref(decode_ref(name), _read_ref(f"{folder}/{name}")))
        except FileNotFoundError:  # deleted since the folder was listed
            continue
    refs.sort(key=lambda ref: ref.name)
    return tuple(refs)


def _read_ref(place: str) -> str:
    commit = read_plain(Path(place)).removesuffix(b"\n").decode("ascii", "replace")
    if COMMIT_ID.fullmatch(commit) is None:
        raise FormatError(f"{place}: expected a commit id, found {commit!r}")
    return commit


def find_branch(hub: DirectoryHub, repo: RepoId, name: str) -> str | None:
    """Return the commit of a branch, or of a proposal ``refs/pr/<number>``; None where there is none.

    Raises:
        FormatError: it is not a commit id.
    """
    try:
        return _read_ref(f"{repository_path(hub, repo)}/refs/{branch_file(name)}")
    except (FileNotFoundError, NotADirectoryError):
        return None


def branch_file(name: str) -> str:
    """Return where a branch, or a proposal, stands below ``refs``."""
    proposal = PROPOSAL.fullmatch(name)
    return f"pr/{proposal[1]}" if proposal else f"heads/{encode_ref(name)}"


def decode_ref(name: str) -> str:
    """Return the name of a ref from that of its file."""
    if "%" not in name:
        return name
    from urllib.parse import unquote

    return unquote(name)


def encode_ref(name: str) -> str:
    """Return the name of a ref's file: percent-encoded but for letters, digits and ``_.-~``."""
    from urllib.parse import quote

    return quote(name, safe="")


def refs_stamp(hub: DirectoryHub, repo: RepoId) -> tuple[int, ...]:
    """Return a value that changes whenever a ref is written; costs a few ``stat`` calls.

    Of an unversioned repository it changes when a variant is added, taken away or replaced, but
    not when somebody edits a file in place.

    Raises:
        FileNotFoundError: no such repository.
    """
    folder = repository_path(hub, repo)
    try:
        heads = (folder / "refs" / "heads").stat().st_mtime_ns
    except FileNotFoundError:
        return unversioned.stamp(folder)
    try:
        return (heads, (folder / "refs" / "tags").stat().st_mtime_ns)
    except FileNotFoundError:
        return (heads,)


def read_listing(hub: DirectoryHub, repo: RepoId, commit: str) -> Listing:
    """Read and verify the listing of a commit.

    Raises:
        FileNotFoundError: no such commit.
        IntegrityError: the listing's hash is not the commit id.
    """
    folder = repository_path(hub, repo)
    if COMMIT_ID.fullmatch(commit) is None:
        raise FileNotFoundError(f"{repo} has no commit {commit!r}: expected 40 hex digits")
    try:
        data = read_plain(folder / "trees" / f"{commit}.json")
    except FileNotFoundError as err:
        if not is_versioned(folder):
            listing = unversioned.compute_listing(folder)
            if commit_id(format_listing(listing)) == commit:
                return listing
        raise FileNotFoundError(f"{repo} in {hub.root} has no commit {commit}") from err
    found = commit_id(data)
    if found != commit:
        raise IntegrityError(
            f"{folder}/trees/{commit}.json: its bytes were changed; they hash to {found}"
        )
    return parse_listing(data)


def snapshot_path(hub: DirectoryHub, repo: RepoId, commit: str) -> Path:
    """Return the folder of a commit's files; of a repository without versions, its own.

    Raises:
        FormatError: the commit is no commit id.
    """
    if COMMIT_ID.fullmatch(commit) is None:
        raise FormatError(f"expected a commit of 40 hex digits, found {commit!r}")
    folder = repository_path(hub, repo)
    return folder / "snapshots" / commit if is_versioned(folder) else folder


def file_path(hub: DirectoryHub, repo: RepoId, commit: str, path: str) -> Path:
    """Return the place of a file of a commit on disk (it may have been tampered with).

    Raises:
        FormatError: the commit is no commit id, or the path would leave its snapshot.
    """
    return snapshot_path(hub, repo, commit) / parse_safe_path(path)
