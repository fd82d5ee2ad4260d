"""Verified bytes of a variant that a hub offers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from kernel_spec.blob import begin_blob, is_promised
from kernel_spec.errors import IntegrityError
from kernel_spec.metadata import FILE_NAME
from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile
from kernels.errors import HubUnreachableError
from kernels.hub import BUILD_FOLDER, Sender
from kernels.single_flight import ask_once
from kernels.store import Store, read_kept, write_kept

# A metadata.json is kept in memory before it is judged; real ones have a few kilobytes.
METADATA_BYTES = 16 << 20

# A download that breaks off is begun anew so often, after pauses of at most so many seconds.
ATTEMPTS = 4
LONGEST_PAUSE = 10.0

T = TypeVar("T")


class Wanted(NamedTuple):
    """A variant that a hub offers.

    Attributes:
        hub: who offers it.
        repo: the repository.
        commit: the commit.
        variant: the name of the variant.
        files: its files, with paths from the variant's root.
    """

    hub: Sender
    repo: RepoId
    commit: str
    variant: str
    files: tuple[TreeFile, ...]

    def __str__(self) -> str:
        return f"{self.repo} ({self.variant} at commit {self.commit[:12]})"


def fetch_metadata(wanted: Wanted, store: Store | None = None) -> bytes | None:
    """Return the verified bytes of a variant's ``metadata.json``, or None where it has none.

    Args:
        wanted: the variant.
        store: the cache, which keeps them so that a host asks for them once; None: they are not kept.

    Raises:
        IntegrityError: it is larger than any that is meant, or as :func:`read_verified`.
    """
    for file in wanted.files:
        if file.path == FILE_NAME:
            if file.size > METADATA_BYTES:
                origin = wanted.hub.origin_of(
                    wanted.repo, wanted.commit, _in_repo(wanted, file.path)
                )
                raise IntegrityError(
                    f"{wanted} on {origin.place}: {FILE_NAME} has {file.size} bytes, expected at "
                    f"most {METADATA_BYTES}. {origin.advice}"
                )
            return _read_metadata(wanted, file, store)
    return None


def _read_metadata(wanted: Wanted, file: TreeFile, store: Store | None) -> bytes:
    name = file.sha256 or file.oid

    def fetch() -> bytes:
        return again(lambda: b"".join(read_verified(wanted, file)), wanted.hub)

    if store is None or wanted.hub.is_directory:
        return fetch()

    def find() -> bytes | None:
        data = read_kept(store, "metadata", name)
        return data if data is not None and is_promised(file, data) else None

    def ask() -> bytes:
        data = fetch()
        write_kept(store, "metadata", name, data)
        return data

    known = find()
    return ask_once(store, ("metadata", name), find, ask) if known is None else known


def again(action: Callable[[], T], hub: Sender) -> T:
    """Do something that reads from a hub, and do it anew where that breaks off.

    Raises:
        HubUnreachableError: the hub went away, or asks for a longer pause than ``LONGEST_PAUSE``.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return action()
        except HubUnreachableError as err:
            pause = 0.3 * attempt if err.retry_after is None else err.retry_after
            if hub.is_directory or pause > LONGEST_PAUSE:
                raise
            time.sleep(pause)
    return action()


def read_verified(wanted: Wanted, file: TreeFile) -> Iterator[bytes]:
    """Yield the bytes of a file; raise at the end, or as soon as there are too many, if they differ."""
    whole = file._replace(path=_in_repo(wanted, file.path))
    return read_file(wanted.hub, wanted.repo, wanted.commit, whole, str(wanted))


def _in_repo(wanted: Wanted, path: str) -> str:
    return f"{BUILD_FOLDER}/{wanted.variant}/{path}"


def read_file(
    hub: Sender, repo: RepoId, commit: str, file: TreeFile, what: str | None = None
) -> Iterator[bytes]:
    """Yield the bytes of a file of a repository, as :func:`read_verified` does."""
    expected = file.sha256 or file.oid
    actual = hashlib.sha256() if file.sha256 is not None else begin_blob(file.size)
    size = 0
    for chunk in hub.read_chunks(repo, commit, file):
        size += len(chunk)
        if size > file.size:
            break
        actual.update(chunk)
        yield chunk
    if size != file.size or actual.hexdigest() != expected:
        found = f"more than {file.size}" if size > file.size else str(size)
        origin = hub.origin_of(repo, commit, file.path)
        raise IntegrityError(
            f"{origin.place} holds other bytes than its listing promises; nothing was installed:\n"
            f"  {what or repo}: {file.path}: expected {file.size} bytes with hash {expected}, "
            f"found {found} bytes with hash {actual.hexdigest()}\n"
            f"{origin.advice}"
        )
