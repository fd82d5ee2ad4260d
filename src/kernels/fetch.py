"""Verified bytes of a variant that a hub offers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kernel_spec.errors import IntegrityError
from kernel_spec.metadata import FILE_NAME
from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile
from kernels.hub import BUILD_FOLDER, Hub

if TYPE_CHECKING:
    from hashlib import _Hash


# A metadata.json is kept in memory before it is judged; real ones have a few kilobytes.
METADATA_BYTES = 16 << 20


class Wanted(NamedTuple):
    """A variant that a hub offers.

    Attributes:
        hub: who offers it.
        repo: the repository.
        commit: the commit.
        variant: the name of the variant.
        files: its files, with paths from the variant's root.
    """

    hub: Hub
    repo: RepoId
    commit: str
    variant: str
    files: tuple[TreeFile, ...]

    def __str__(self) -> str:
        return f"{self.repo} ({self.variant} at commit {self.commit[:12]})"


def fetch_metadata(wanted: Wanted) -> bytes | None:
    """Return the verified bytes of a variant's ``metadata.json``, or None where it has none.

    Raises:
        IntegrityError: it is larger than any that is meant, or as :func:`read_verified`.
    """
    for file in wanted.files:
        if file.path == FILE_NAME:
            if file.size > METADATA_BYTES:
                raise IntegrityError(
                    f"{wanted} on {wanted.hub.url}: {FILE_NAME} has {file.size} bytes, expected at "
                    f"most {METADATA_BYTES}. Publish the kernel again, or ask who runs the hub."
                )
            return b"".join(read_verified(wanted, file))
    return None


def read_verified(wanted: Wanted, file: TreeFile) -> Iterator[bytes]:
    """Yield the bytes of a file; raise at the end, or as soon as there are too many, if they differ."""
    path = f"{BUILD_FOLDER}/{wanted.variant}/{file.path}"
    whole = replace(file, path=path)
    return read_file(wanted.hub, wanted.repo, wanted.commit, whole, str(wanted))


def read_file(
    hub: Hub, repo: RepoId, commit: str, file: TreeFile, what: str | None = None
) -> Iterator[bytes]:
    """Yield the bytes of a file of a repository, as :func:`read_verified` does."""
    expected = file.sha256 or file.oid
    actual: _Hash
    if file.sha256 is not None:
        actual = hashlib.sha256()
    else:
        actual = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)
    size = 0
    for chunk in hub.read_chunks(repo, commit, file):
        size += len(chunk)
        if size > file.size:
            break
        actual.update(chunk)
        yield chunk
    if size != file.size or actual.hexdigest() != expected:
        found = f"more than {file.size}" if size > file.size else str(size)
        raise IntegrityError(
            f"{hub.url} holds other bytes than its listing promises; nothing was installed:\n"
            f"  {what or repo}: {file.path}: expected {file.size} bytes with hash {expected}, "
            f"found {found} bytes with hash {actual.hexdigest()}\n"
            "Publish the kernel again, or ask who runs the hub."
        )
