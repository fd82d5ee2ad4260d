"""The story of a read: repository, revision, commit, snapshot, history, bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from kernel_hub.errors import (
    AmbiguousRevisionError,
    EntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from kernel_hub.service.revision import (
    default_commit,
    find_ref,
    is_full_commit,
    is_short_commit,
)
from kernel_hub.service.snapshot import Snapshot, make_snapshot
from kernel_hub.service.store import Store
from kernel_spec.directory import PROPOSAL
from kernel_spec.errors import KernelError
from kernel_spec.names import RepoId
from kernel_spec.wire import Refs, TreeFile

log = logging.getLogger("kernel_hub.service")

# A snapshot of a thousand files takes about 1 MB.
SNAPSHOTS_KEPT = 256


@dataclass(frozen=True, slots=True)
class Head:
    """A repository, its default commit (None where it has no branch), and when that was made, in UTC."""

    repo: RepoId
    commit: str | None
    time: datetime | None


class Catalogue:
    """Reads repositories from a store and remembers snapshots, which never change."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._snapshot = lru_cache(maxsize=SNAPSHOTS_KEPT)(self._read_snapshot)

    def list_heads(
        self, *, owner: str | None = None, search: str = "", after: str = ""
    ) -> Iterator[Head]:
        """Yield the repositories in the order of their ids; one that is damaged is logged and left out.

        Args:
            owner: whose; None for everybody's.
            search: a part of the id, in letters of any case.
            after: the id that the first one comes after.
        """
        for repo in self.store.list_repositories(owner):
            if str(repo) <= after or search.lower() not in str(repo).lower():
                continue
            try:
                commit = default_commit(self.store.read_refs(repo))
                time = None if commit is None else self.store.commit_time(repo, commit)
            except RepositoryNotFoundError:  # it has gone since it was listed
                continue
            except KernelError as err:
                log.error("%s: %s", repo, err)  # noqa: TRY400 - the message says where it is
                continue
            yield Head(repo, commit, time)

    def read_refs(self, repo: RepoId) -> Refs:
        """Read the branches and tags of a repository.

        Raises:
            RepositoryNotFoundError: no such repository.
        """
        return self.store.read_refs(repo)

    def get_snapshot(self, repo: RepoId, revision: str | None) -> Snapshot:
        """Return the commit that a revision means; None is the default branch.

        Raises:
            RepositoryNotFoundError: no such repository.
            RevisionNotFoundError: no such revision.
            AmbiguousRevisionError: it is the beginning of several commits.
        """
        refs = self.store.read_refs(repo)
        return self._snapshot(repo, self._get_commit(repo, refs, revision))

    def get_content(self, snapshot: Snapshot, path: str) -> tuple[TreeFile, Path | bytes]:
        """Return a file's entry in git's form and its bytes, or where they are.

        Raises:
            EntryNotFoundError: the commit has no such file.
            DamagedFileError: the bytes are not those that were published.
        """
        entry = _get_file(snapshot, path)
        return entry, self.store.get_content(snapshot.repo, snapshot.commit, snapshot.stored[path])

    def commit_time(self, snapshot: Snapshot) -> datetime:
        """Return when a commit was made, in UTC."""
        return self.store.commit_time(snapshot.repo, snapshot.commit)

    def history(self, snapshot: Snapshot) -> Iterator[Snapshot]:
        """Yield a commit and those before it, as far as the store still has them."""
        current: Snapshot | None = snapshot
        while current is not None:
            yield current
            current = self.find_parent(current)

    def find_parent(self, snapshot: Snapshot) -> Snapshot | None:
        """Return the commit before, or None where there is none or the store dropped it."""
        if snapshot.parent is None:
            return None
        try:
            return self._snapshot(snapshot.repo, snapshot.parent)
        except RevisionNotFoundError:
            return None

    def _get_commit(self, repo: RepoId, refs: Refs, revision: str | None) -> str:
        if revision is None:
            commit = default_commit(refs)
        elif is_full_commit(revision):
            commit = revision
        elif PROPOSAL.fullmatch(revision):
            commit = self.store.find_proposal(repo, revision)
        else:
            commit = find_ref(refs, revision) or self._find_short(repo, revision)
        if commit is None:
            raise RevisionNotFoundError(repo, revision or "(the default branch)")
        return commit

    def _find_short(self, repo: RepoId, revision: str) -> str | None:
        found = self.store.find_commits(repo, revision) if is_short_commit(revision) else ()
        if len(found) > 1:
            raise AmbiguousRevisionError(repo, revision, found)
        return next(iter(found), None)

    def _read_snapshot(self, repo: RepoId, commit: str) -> Snapshot:
        return make_snapshot(repo, commit, self.store.read_listing(repo, commit))


def _get_file(snapshot: Snapshot, path: str) -> TreeFile:
    entry = snapshot.entries.get(path)
    if not isinstance(entry, TreeFile):
        raise EntryNotFoundError(snapshot.repo, snapshot.commit, path)
    return entry
