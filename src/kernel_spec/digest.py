"""Digests: the hash of every file of a variant, and of the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath


class Violation(StrEnum):
    """How a file differs from what a digest promised."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    MISMATCH = "mismatch"
    ALGORITHM = "algorithm"


@dataclass(frozen=True, slots=True)
class Digest:
    """The hash of each file of a variant.

    Attributes:
        algorithm: ``sha256`` or ``sha512``.
        files: standard base64 of the hash of the bytes, by POSIX path, sorted by path.
    """

    algorithm: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DigestViolation:
    """One file (or the algorithm) that is not as a digest promised."""

    kind: Violation
    path: str
    expected: str | None = None
    found: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.kind.value}"


def is_counted(path: PurePosixPath) -> bool:
    """Say whether a file of a variant counts in its digest.

    Left out are ``metadata.json`` and ``metadata.json.sigstore`` at the top, everything under a
    directory ``__pycache__``, and ``*.pyc``.
    """
    raise NotImplementedError


def iter_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the POSIX path and place of each file that counts, sorted by path.

    Raises:
        IntegrityError: a symbolic link leads out of the variant, or something is neither a
            file nor a directory.
    """
    raise NotImplementedError


def digest_tree(root: Path, algorithm: str = "sha256") -> Digest:
    """Hash every file of a variant that counts."""
    raise NotImplementedError


def compare(reference: Digest, actual: Digest) -> tuple[DigestViolation, ...]:
    """List what differs, the files of the reference first, both in order of path."""
    raise NotImplementedError


def variant_digest(files: Iterable[tuple[str, int, str]]) -> str:
    """Name a variant by its whole content: 64 hex digits.

    sha256 over one line ``<sha256 of the file, hex> <size> <POSIX path>\\n`` per file,
    sorted by path. ``metadata.json`` counts here; bytecode does not.

    Args:
        files: path, size in bytes and sha256 (hex) of each file.
    """
    raise NotImplementedError
