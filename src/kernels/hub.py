"""What a hub is to the loader: a Protocol, of which those who only read bytes know a part.

A hub answers four questions about a repository (its refs, the files of a commit, the commit that
a text means, the bytes of a file) and one about an owner. :mod:`kernels.hub_directory` reads
a folder, :mod:`kernels.hub_http` speaks the protocol of the public Hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kernel_spec.names import RepoId
from kernel_spec.wire import Organization, Refs, TreeFile

BUILD_FOLDER = "build"
CHUNK_BYTES = 1 << 20


class Origin(NamedTuple):
    """Where bytes came from, and what to do where they are not those that were promised."""

    place: str
    advice: str


class Sender(Protocol):
    """A place that has the bytes of files.

    Every method raises ``HubUnreachableError`` where there is no answer now, and
    ``HubAccessError`` where the place refuses.
    """

    @property
    def url(self) -> str:
        """The URL of the hub that it is, or stands for, without a slash at its end."""

    @property
    def is_directory(self) -> bool:
        """Whether it is on this disk, costs no network, and naming it is trusting it."""

    def read_chunks(self, repo: RepoId, commit: str, file: TreeFile) -> Iterator[bytes]:
        """Yield the bytes of a file of a commit, unverified."""

    def origin_of(self, repo: RepoId, commit: str, path: str) -> Origin:
        """Say where the bytes of a file are, for messages; never fails."""


class Hub(Sender, Protocol):
    """A place that has kernels."""

    def read_refs(self, repo: RepoId) -> Refs:
        """Read the branches and tags of a repository.

        Raises:
            RepoNotFoundError: this hub has no such repository.
        """

    def read_tree(self, repo: RepoId, commit: str, below: str = "") -> tuple[TreeFile, ...]:
        """List the files of a commit, all of them or those below one folder; paths from the root.

        Raises:
            RepoNotFoundError: this hub has no such repository.
            RevisionNotFoundError: the repository has no such commit.
        """

    def find_commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """Return the full commits that a text may mean which is no branch or tag.

        Raises:
            RepoNotFoundError: this hub has no such repository.
        """

    def read_organization(self, owner: str) -> Organization | None:
        """Return what the hub says of an owner; None where it knows no such organization."""

    def stamp(self, repo: RepoId) -> tuple[int, ...] | None:
        """Return a cheap value that changes with the refs, or None where there is none."""

    def find_similar(self, repo: RepoId) -> tuple[str, ...]:
        """Return ids of repositories with a name like this one; empty where that costs too much."""

    def has_model(self, repo: RepoId) -> bool:
        """Say whether the name is that of a model, as kernels were until they had a type of their own."""
