"""The answers of a hub, as values: what the client reads and the server writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeFile:
    """A file of a repository at a commit.

    Attributes:
        path: its POSIX path from the root of the repository.
        size: its size in bytes.
        oid: its git blob id (sha1 of ``blob <size>\\0`` and the bytes), 40 hex digits; for a
            file in large file storage, that of its pointer.
        sha256: the sha256 of its bytes, 64 hex digits, or None where the hub does not say.
        executable: whether its mode is 100755.
    """

    path: str
    size: int
    oid: str
    sha256: str | None = None
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or a tag: its short name and its commit."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class Refs:
    """The branches and tags of a repository."""

    branches: tuple[Ref, ...]
    tags: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Organization:
    """What a hub says of an owner."""

    name: str
    full_name: str
    trusted_publisher: bool


def parse_refs(answer: Any) -> Refs:
    """Read the answer of ``GET /api/kernels/{id}/refs``.

    Raises:
        WireError: the answer is not of that form.
    """
    raise NotImplementedError


def format_refs(refs: Refs) -> dict[str, Any]:
    """Write that answer: ``branches``, ``tags``, ``converts`` (each with ``targetCommit``)."""
    raise NotImplementedError


def parse_tree(answer: Any) -> tuple[TreeFile, ...]:
    """Read one page of ``GET /api/kernels/{id}/tree/{rev}``; directories are left out.

    Raises:
        WireError: the answer is not of that form.
    """
    raise NotImplementedError


def format_tree_file(file: TreeFile) -> dict[str, Any]:
    """Write one file entry: ``type``, ``oid``, ``size``, ``path`` and, with a sha256, ``lfs``."""
    raise NotImplementedError


def format_tree_directory(path: str, oid: str) -> dict[str, Any]:
    """Write one directory entry."""
    raise NotImplementedError


def parse_organization(answer: Any) -> Organization:
    """Read the answer of ``GET /api/organizations/{name}/overview``.

    Raises:
        WireError: the answer is not of that form.
    """
    raise NotImplementedError


def format_organization(organization: Organization) -> dict[str, Any]:
    """Write that answer."""
    raise NotImplementedError
