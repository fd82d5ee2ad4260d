"""What the service needs from the place where repositories are kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from kernel_spec.directory import Listing
from kernel_spec.names import RepoId
from kernel_spec.wire import Refs, TreeFile


class Store(Protocol):
    """A place where repositories are kept; its methods are called from several threads."""

    def has_owner(self, owner: str) -> bool:
        """Say whether the owner has anything here."""
        ...

    def list_repositories(self, owner: str | None) -> Sequence[RepoId]:
        """List the repositories of one owner, or of all, sorted."""
        ...

    def read_refs(self, repo: RepoId) -> Refs:
        """Read branches and tags, sorted by name.

        Raises:
            RepositoryNotFoundError: no such repository.
        """
        ...

    def find_proposal(self, repo: RepoId, ref: str) -> str | None:
        """Return the commit of a proposal ``refs/pr/<number>``, or None."""
        ...

    def find_commits(self, repo: RepoId, prefix: str) -> Collection[str]:
        """Return the commits whose ids begin so."""
        ...

    def read_listing(self, repo: RepoId, commit: str) -> Listing:
        """Read the verified listing of a commit; each ``oid`` is the blob id of the bytes.

        Raises:
            RevisionNotFoundError: no such commit.
        """
        ...

    def commit_time(self, repo: RepoId, commit: str) -> datetime:
        """Return when the commit was made, in UTC.

        Raises:
            RevisionNotFoundError: no such commit.
        """
        ...

    def get_content(self, repo: RepoId, commit: str, file: TreeFile) -> Path | bytes:
        """Return a file's verified bytes, or the place on disk that holds them.

        Args:
            repo: the repository.
            commit: a commit of it.
            file: an entry of that commit's listing.

        Raises:
            DamagedFileError: the bytes are not those that the listing promises.
        """
        ...
