"""The answers of a hub, as values: what the client reads and the server writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from reprlib import Repr
from typing import Any, NamedTuple

from kernel_spec.errors import WireError
from kernel_spec.names import COMMIT, SHA1, SHA256, path_fault

# What a hub sent may be of any length and depth; so much of it stands in a message.
_shown = Repr()
_shown.maxstring = _shown.maxother = 100


class TreeFile(NamedTuple):
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


class Ref(NamedTuple):
    """A branch or a tag: its short name and its commit."""

    name: str
    commit: str


class Refs(NamedTuple):
    """The branches and tags of a repository."""

    branches: tuple[Ref, ...]
    tags: tuple[Ref, ...]


class Organization(NamedTuple):
    """What a hub says of an owner."""

    name: str
    full_name: str
    trusted_publisher: bool


def parse_refs(answer: Any) -> Refs:
    """Read the answer of ``GET /api/kernels/{id}/refs``; names that cannot be printed are left out.

    Raises:
        WireError: the answer is not of that form.
    """
    table = _object(answer, "refs")
    return Refs(_read_refs(table, "branches", required=True), _read_refs(table, "tags"))


def _read_refs(table: Mapping[str, Any], key: str, *, required: bool = False) -> tuple[Ref, ...]:
    entries = table.get(key)
    if entries is None and not required:
        return ()
    refs = []
    for index, entry in enumerate(_array(entries, f"refs.{key}")):
        where = f"refs.{key}[{index}]"
        fields = _object(entry, where)
        commit = _text(fields, "targetCommit", where)
        if COMMIT.fullmatch(commit) is None:
            raise WireError(
                f"{where}.targetCommit: expected a commit id, found {_shown.repr(commit)}"
            )
        name = _text(fields, "name", where)
        # git has no other, nobody can ask for one, and it is told in messages.
        if name.isprintable():
            refs.append(Ref(name, commit))
    return tuple(sorted(refs, key=lambda ref: ref.name))


def format_refs(refs: Refs) -> dict[str, Any]:
    """Write that answer: ``branches``, ``tags``, ``converts`` (each with ``targetCommit``)."""
    return {
        "branches": _format_refs(refs.branches, "refs/heads/"),
        "tags": _format_refs(refs.tags, "refs/tags/"),
        "converts": [],
    }


def _format_refs(refs: Iterable[Ref], prefix: str) -> list[dict[str, str]]:
    return [
        {"name": ref.name, "ref": prefix + ref.name, "targetCommit": ref.commit} for ref in refs
    ]


def parse_tree(answer: Any) -> tuple[TreeFile, ...]:
    """Read one page of ``GET /api/kernels/{id}/tree/{rev}``; directories are left out.

    Raises:
        WireError: the answer is not of that form.
    """
    files = []
    for index, entry in enumerate(_array(answer, "tree")):
        where = f"tree[{index}]"
        fields = _object(entry, where)
        match _text(fields, "type", where):
            case "file":
                files.append(_read_file(fields, where))
            case "directory":
                continue
            case kind:
                raise WireError(
                    f"{where}.type: expected file or directory, found {_shown.repr(kind)}"
                )
    return tuple(files)


def _read_file(fields: Mapping[str, Any], where: str) -> TreeFile:
    path = _text(fields, "path", where)
    fault = path_fault(path)
    if fault is not None:
        raise WireError(f"{where}.path: unsafe path {_shown.repr(path)}: {fault}")
    oid = _text(fields, "oid", where)
    if SHA1.fullmatch(oid) is None:
        raise WireError(f"{where}.oid: expected 40 hex digits, found {_shown.repr(oid)}")
    if fields.get("lfs") is None:
        return TreeFile(path=path, size=_size(fields, where), oid=oid)
    lfs_where = f"{where}.lfs"
    lfs = _object(fields["lfs"], lfs_where)
    sha256 = _text(lfs, "oid", lfs_where)
    if SHA256.fullmatch(sha256) is None:
        raise WireError(f"{lfs_where}.oid: expected 64 hex digits, found {_shown.repr(sha256)}")
    return TreeFile(path=path, size=_size(lfs, lfs_where), oid=oid, sha256=sha256)


def format_tree_file(file: TreeFile) -> dict[str, Any]:
    """Write one file entry: ``type``, ``oid``, ``size``, ``path`` and, with a sha256, ``lfs``."""
    entry: dict[str, Any] = {
        "type": "file",
        "oid": file.oid,
        "size": file.size,
        "path": file.path,
    }
    if file.sha256 is not None:
        entry["lfs"] = {
            "oid": file.sha256,
            "size": file.size,
            "pointerSize": len(lfs_pointer(file.sha256, file.size)),
        }
    return entry


def lfs_pointer(sha256: str, size: int) -> bytes:
    """Write the pointer that git holds in place of a large file (Git LFS specification, v1)."""
    return (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"
    ).encode("ascii")


def format_tree_directory(path: str, oid: str) -> dict[str, Any]:
    """Write one directory entry."""
    return {"type": "directory", "oid": oid, "size": 0, "path": path}


def parse_organization(answer: Any) -> Organization:
    """Read the answer of ``GET /api/organizations/{name}/overview``.

    Raises:
        WireError: the answer is not of that form.
    """
    table = _object(answer, "organization")
    trusted = table.get("trustedKernelPublisher", False)
    if type(trusted) is not bool:
        raise WireError(
            f"organization.trustedKernelPublisher: expected true or false, found {_shown.repr(trusted)}"
        )
    name = _text(table, "name", "organization")
    full_name = table.get("fullname")
    return Organization(name, full_name if isinstance(full_name, str) else name, trusted)


def format_organization(organization: Organization) -> dict[str, Any]:
    """Write that answer."""
    return {
        "name": organization.name,
        "fullname": organization.full_name,
        "avatarUrl": "",
        "trustedKernelPublisher": organization.trusted_publisher,
    }


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise WireError(f"{where}: expected an object, found {type(value).__name__}")
    return value


def _array(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise WireError(f"{where}: expected an array, found {type(value).__name__}")
    return value


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise WireError(f"{where}.{key}: expected a text, found {_shown.repr(value)}")
    return value


def _size(table: Mapping[str, Any], where: str) -> int:
    value = table.get("size")
    if type(value) is not int or value < 0:
        raise WireError(f"{where}.size: expected a number of bytes, found {_shown.repr(value)}")
    return value
