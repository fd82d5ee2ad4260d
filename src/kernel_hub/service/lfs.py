"""Which files count as large, that is: are a pointer in git and bytes in large file storage."""

from __future__ import annotations

from pathlib import PurePosixPath

from kernel_spec.blob import blob_id
from kernel_spec.wire import TreeFile, lfs_pointer

# Text below this many bytes is an ordinary git blob.
LARGE_FROM = 1024 * 1024

_LIBRARIES = frozenset({".so", ".pyd", ".dll", ".dylib", ".a", ".lib", ".o", ".obj", ".exe"})
_DEVICE_CODE = frozenset({".bin", ".cubin", ".fatbin", ".hsaco", ".spv", ".metallib"})
_ARCHIVES = frozenset({".whl", ".zip", ".tar", ".gz", ".xz", ".zst", ".bz2", ".7z"})
_ARRAYS = frozenset({".pt", ".pth", ".safetensors", ".npy", ".npz", ".parquet"})
_MEDIA = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".pdf", ".mp4", ".woff2"})

# A file with one of these suffixes anywhere in its name (``libx.so.1``) is binary at any size.
BINARY_SUFFIXES = _LIBRARIES | _DEVICE_CODE | _ARCHIVES | _ARRAYS | _MEDIA


def is_large(path: str, size: int) -> bool:
    """Say whether a file is kept as a pointer and its bytes in large file storage."""
    suffixes = {suffix.lower() for suffix in PurePosixPath(path).suffixes}
    return size >= LARGE_FROM or not suffixes.isdisjoint(BINARY_SUFFIXES)


def git_form(file: TreeFile) -> TreeFile:
    """Turn an entry whose ``oid`` is the blob id of its bytes into what git would show.

    A large file gets the blob id of its pointer; any other loses its sha256, by which clients
    know the two apart. A large file of unknown sha256 stays an ordinary blob.
    """
    if file.sha256 is not None and is_large(file.path, file.size):
        return file._replace(oid=blob_id(lfs_pointer(file.sha256, file.size)))
    return file._replace(sha256=None)
