"""Digests: the hash of every file of a variant, and of the whole."""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple, assert_never

from kernel_spec.errors import FormatError, IntegrityError

# Length of a hash in bytes, by algorithm.
ALGORITHMS = {"sha256": 32, "sha512": 64}

_UNCOUNTED_TOP = ("metadata.json", "metadata.json.sigstore")
_BYTECODE_DIRECTORY = "__pycache__"
_BYTECODE_SUFFIX = ".pyc"


class Violation(StrEnum):
    """How a file differs from what a digest promised."""

    MISSING = "missing-file"
    UNKNOWN = "unknown-file"
    MISMATCH = "hash-mismatch"
    ALGORITHM = "algorithm-mismatch"


class Digest(NamedTuple):
    """The hash of each file of a variant.

    Attributes:
        algorithm: ``sha256`` or ``sha512``.
        files: standard base64 of the hash of the bytes, by POSIX path, sorted by path.
    """

    algorithm: str
    files: Mapping[str, str]


class DigestViolation(NamedTuple):
    """One file (or the algorithm) that is not as a digest promised."""

    kind: Violation
    path: str
    expected: str | None = None
    found: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case Violation.MISSING:
                return f"{self.path}: is missing"
            case Violation.UNKNOWN:
                return f"{self.path}: is not in the digest"
            case Violation.MISMATCH:
                return f"{self.path}: expected hash {self.expected}, found {self.found}"
            case Violation.ALGORITHM:
                return f"expected algorithm {self.expected}, found {self.found}"
            case _:
                assert_never(self.kind)


def is_counted(path: PurePosixPath) -> bool:
    """Say whether a file of a variant counts in its digest.

    Left out are ``metadata.json`` and ``metadata.json.sigstore`` at the top, everything under a
    directory ``__pycache__``, and ``*.pyc``.
    """
    text = path.as_posix()
    return text not in _UNCOUNTED_TOP and not is_bytecode(text)


def is_bytecode(path: str) -> bool:
    """Say whether a POSIX path is ``*.pyc`` or below a directory ``__pycache__``."""
    return path.endswith(_BYTECODE_SUFFIX) or _BYTECODE_DIRECTORY in path.split("/")[:-1]


def iter_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the POSIX path and place of each file that counts, sorted by path.

    Raises:
        IntegrityError: a symbolic link leads out of the variant, or something is neither a
            file nor a directory.
    """
    real_root = os.path.realpath(root)
    found = [
        (path, place)
        for path, place in _walk(str(root), "", real_root)
        if path not in _UNCOUNTED_TOP
    ]
    found.sort()
    for path, place in found:
        yield path, Path(place)


def _walk(directory: str, prefix: str, real_root: str) -> Iterator[tuple[str, str]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name != _BYTECODE_DIRECTORY:
                    yield from _walk(entry.path, path + "/", real_root)
                continue
            if entry.name.endswith(_BYTECODE_SUFFIX):
                continue
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                if os.path.commonpath((real_root, target)) != real_root:
                    raise IntegrityError(
                        f"{entry.path}: a symbolic link leads out of the variant, to {target}"
                    )
            if not entry.is_file():
                raise IntegrityError(f"{entry.path}: expected a file or a directory")
            yield path, entry.path


def digest_tree(root: Path, algorithm: str = "sha256") -> Digest:
    """Hash every file of a variant that counts.

    Raises:
        IntegrityError: as :func:`iter_files`.
        FormatError: an unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise FormatError(f"unknown digest algorithm {algorithm!r}; known are sha256 and sha512")
    import hashlib

    files = {}
    for path, place in iter_files(root):
        with place.open("rb", buffering=0) as stream:
            raw = hashlib.file_digest(stream, algorithm).digest()
        files[path] = b2a_base64(raw, newline=False).decode("ascii")
    return Digest(algorithm, files)


def compare(reference: Digest, actual: Digest) -> tuple[DigestViolation, ...]:
    """List what differs, the files of the reference first, both in order of path."""
    violations = []
    same_algorithm = reference.algorithm == actual.algorithm
    if not same_algorithm:
        violations.append(
            DigestViolation(Violation.ALGORITHM, "", reference.algorithm, actual.algorithm)
        )
    for path, expected in sorted(reference.files.items()):
        found = actual.files.get(path)
        if found is None:
            violations.append(DigestViolation(Violation.MISSING, path, expected))
        elif same_algorithm and found != expected:
            violations.append(DigestViolation(Violation.MISMATCH, path, expected, found))
    violations += [
        DigestViolation(Violation.UNKNOWN, path, None, found)
        for path, found in sorted(actual.files.items())
        if path not in reference.files
    ]
    return tuple(violations)


def variant_digest(files: Iterable[tuple[str, int, str]]) -> str:
    """Name a variant by its whole content: 64 hex digits.

    sha256 over one line ``<sha256 of the file, hex> <size> <POSIX path>\\n`` per file,
    sorted by path. ``metadata.json`` counts here; bytecode does not.

    Args:
        files: path, size in bytes and sha256 (hex) of each file.
    """
    import hashlib

    whole = hashlib.sha256()
    previous = None
    for path, size, sha256 in sorted(files):
        if path == previous or "\n" in path:
            raise FormatError(f"a variant cannot hold the path {path!r}, or not twice")
        previous = path
        if not is_bytecode(path):
            try:
                whole.update(f"{sha256} {size} {path}\n".encode())
            except UnicodeEncodeError as err:
                raise FormatError(f"a variant cannot hold the path {path!r}: not UTF-8") from err
    return whole.hexdigest()
