"""``kernels.lock``: which commit and which bytes a project uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FILE_NAME = "kernels.lock"
FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedKernel:
    """One locked dependency.

    Attributes:
        repo_id: ``owner/name``.
        commit: 40 or 64 hex digits.
        version: the integer that was asked for, if one was.
        version_range: the range over tags that was asked for, if one was.
        revision: the branch, tag or commit that was asked for, if one was.
        variants: the digest of each variant at that commit (``variant_digest``), by name;
            empty where the lock's format does not carry them.
        lfs_hashes: the old format's ``git_lfs_concat`` hash of each variant, by name.
    """

    repo_id: str
    commit: str
    version: int | None = None
    version_range: str | None = None
    revision: str | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    lfs_hashes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file: its form (``ours``, ``new`` or ``old``) and its kernels, sorted by repo."""

    form: str
    kernels: tuple[LockedKernel, ...]


def parse_lock(data: bytes) -> Lock:
    """Read a lock file: ours, or one of the two forms of the published client.

    Raises:
        LockError: with every fault of the document.
    """
    raise NotImplementedError


def format_lock(kernels: tuple[LockedKernel, ...]) -> bytes:
    """Write our form: ``{"format": 1, "kernels": [...]}``, sorted, with a final newline."""
    raise NotImplementedError


def git_lfs_concat(files: Mapping[str, bytes]) -> str:
    """Compute the old format's hash of a variant, ``sha256-<hex>``.

    Args:
        files: for each path, relative to the variant, the raw 20 bytes of its git blob id or
            the raw 32 bytes of its LFS sha256.
    """
    raise NotImplementedError
