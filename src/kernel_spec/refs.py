"""Branches and tags of a directory hub that are made, and taken away, without a commit."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from kernel_spec import staging
from kernel_spec.directory import (
    DirectoryHub,
    encode_ref,
    find_branch,
    is_versioned,
    read_listing,
    repository_path,
)
from kernel_spec.errors import ConflictError
from kernel_spec.names import RepoId
from kernel_spec.publishing import check_names, publish

DEFAULT_BRANCH = "main"


class RefKind(Enum):
    """What a ref is; the value is its folder below ``refs``."""

    BRANCH = "heads"
    TAG = "tags"

    def __str__(self) -> str:
        return self.name.lower()


def create_repository(hub: DirectoryHub, repo: RepoId) -> str:
    """Make a repository whose ``main`` holds no file yet, and return that commit.

    Raises:
        ConflictError: the repository is there.
    """
    if is_versioned(repository_path(hub, repo)):
        raise ConflictError(f"the repository {repo} exists")
    return publish(hub, repo, {}, branch=DEFAULT_BRANCH, parent=None)


def create_ref(hub: DirectoryHub, repo: RepoId, kind: RefKind, name: str, commit: str) -> None:
    """Set a new branch or tag at a commit.

    Raises:
        ConflictError: there is one of that name.
        FileNotFoundError: no such repository or commit.
        FormatError: the name is none that a ref can have.
    """
    check_names((), (name,))
    place = _place(hub, repo, kind, name)
    with staging.staging_folder(repository_path(hub, repo)) as stage:
        # Only now: what a killed publisher had begun is gone.
        read_listing(hub, repo, commit)
        if place.exists():
            raise ConflictError(f"{repo} has a {kind} {name}, and this would be another one")
        staging.write_ref(stage, place, commit)


def move_branch(hub: DirectoryHub, repo: RepoId, branch: str, *, parent: str, commit: str) -> None:
    """Set a branch on a commit that was made on top of it; once it is there, this does nothing.

    Raises:
        ConflictError: the branch is at neither of the two, or is not there.
        FileNotFoundError: no such repository or commit.
    """
    place = _place(hub, repo, RefKind.BRANCH, branch)
    with staging.staging_folder(repository_path(hub, repo)) as stage:
        read_listing(hub, repo, commit)
        found = find_branch(hub, repo, branch)
        if found == commit:
            return
        if found != parent:
            raise ConflictError(
                f"{repo}: the branch {branch} {f'is at {found}' if found else 'is gone'}, not at {parent}"
            )
        staging.write_ref(stage, place, commit)


def delete_ref(hub: DirectoryHub, repo: RepoId, kind: RefKind, name: str) -> None:
    """Take a branch or tag away; the commits stay.

    Raises:
        FileNotFoundError: no such repository or ref.
        FormatError: the name is none that a ref can have.
    """
    check_names((), (name,))
    place = _place(hub, repo, kind, name)
    with staging.staging_folder(repository_path(hub, repo)):
        staging.delete_ref(place)


def _place(hub: DirectoryHub, repo: RepoId, kind: RefKind, name: str) -> Path:
    folder = repository_path(hub, repo)
    if not is_versioned(folder):
        raise FileNotFoundError(f"{folder} is no versioned repository")
    return folder / "refs" / kind.value / encode_ref(name)
