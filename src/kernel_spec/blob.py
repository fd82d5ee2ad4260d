"""Git's ids of bytes, and whether bytes are those that a hub's listing promises."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kernel_spec.wire import TreeFile

if TYPE_CHECKING:
    from hashlib import _Hash


def begin_blob(size: int) -> _Hash:
    """Begin the hash that is the git blob id of as many bytes: sha1 of ``blob <size>\\0`` and the bytes."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def blob_id(data: bytes) -> str:
    """Return the git blob id of bytes: 40 hex digits."""
    blob = begin_blob(len(data))
    blob.update(data)
    return blob.hexdigest()


def is_promised(file: TreeFile, data: bytes) -> bool:
    """Say whether these are the bytes that a listing promises."""
    if file.sha256 is not None:
        return hashlib.sha256(data).hexdigest() == file.sha256
    return blob_id(data) == file.oid
