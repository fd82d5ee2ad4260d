"""``kernels.lock``: which commit and which bytes a project uses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_spec.digest import is_bytecode
from kernel_spec.document import Reader, write_json
from kernel_spec.errors import LockError
from kernel_spec.names import SHA256, commit_fault, repo_id_fault

FILE_NAME = "kernels.lock"
FORMAT = 1

_OLD_HASH_TYPE = "git_lfs_concat"
_OLD_HASH = re.compile(r"sha256-[0-9a-f]{64}", re.ASCII)
_SELECTORS = ("version", "version-range", "revision")


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
    reader = Reader()
    document = reader.load(data)
    lock = None
    if document is not None or not reader.faults:
        lock = _read_document(reader, document)
    if lock is None or reader.faults:
        raise LockError(FILE_NAME, tuple(reader.faults))
    return lock


def _read_document(reader: Reader, document: Any) -> Lock | None:
    if isinstance(document, list):
        return _read_published(reader, document)
    if not isinstance(document, dict) or "format" not in document:
        reader.add(
            "unknown-form",
            "",
            "expected an array, or an object with a format number; this is no known form of lock",
        )
        return None
    form = reader.take_number(document, "format", "", required=True)
    if form is not None and form != FORMAT:
        reader.add(
            "unknown-form",
            "format",
            f"this version reads format {FORMAT}, found {form}: upgrade kernels, or lock again",
        )
        return None
    reader.refuse_unknown(document, ("format", "kernels"), "")
    entries = reader.take(document, "kernels", list, "", required=True) or []
    kernels = []
    for index, entry in enumerate(entries):
        if reader.check_type(entry, dict, f"kernels[{index}]"):
            kernels.append(_read_ours(reader, entry, f"kernels[{index}]"))
    _refuse_twice(reader, kernels, "kernels[{}]")
    return _sorted("ours", kernels)


def _read_published(reader: Reader, entries: list[Any]) -> Lock | None:
    tables = [
        (f"[{index}]", entry)
        for index, entry in enumerate(entries)
        if reader.check_type(entry, dict, f"[{index}]")
    ]
    forms = {_form_of(table) for _, table in tables}
    if len(forms) > 1:
        reader.add("mixed-forms", "", "entries of the old and the new form in one file")
        return None
    if forms == {"old"}:
        old = [_read_old(reader, table, where) for where, table in tables]
        _refuse_twice(reader, old, "[{}]")
        return _sorted("old", old)
    new = [_read_new(reader, table, where) for where, table in tables]
    _refuse_twice(reader, new, "[{}].dependency")
    return _sorted("new", new)


def _form_of(table: Mapping[str, Any]) -> str:
    return "old" if {"repo_id", "sha", "variants"} & set(table) else "new"


def _sorted(form: str, kernels: list[LockedKernel]) -> Lock:
    return Lock(form, tuple(sorted(kernels, key=_order)))


def _order(kernel: LockedKernel) -> tuple[str, int, str, str]:
    version = -1 if kernel.version is None else kernel.version
    return (kernel.repo_id, version, kernel.version_range or "", kernel.revision or "")


def _refuse_twice(reader: Reader, kernels: list[LockedKernel], place: str) -> None:
    seen = set()
    for index, kernel in enumerate(kernels):
        if _order(kernel) in seen:
            reader.add("duplicate", place.format(index), f"{kernel.repo_id} is locked twice")
        seen.add(_order(kernel))


def _read_new(reader: Reader, table: Mapping[str, Any], where: str) -> LockedKernel:
    reader.refuse_unknown(table, ("dependency", "lock"), where)
    dependency = reader.take(table, "dependency", dict, where, required=True)
    lock = reader.take(table, "lock", dict, where, required=True)
    fields: dict[str, Any] = {"repo_id": "", "commit": ""}
    if dependency is not None:
        place = f"{where}.dependency"
        fields |= _read_dependency(reader, dependency, place, ("version", "revision"))
        reader.refuse_unknown(dependency, ("repo-id", "version", "revision"), place)
    if lock is not None:
        reader.refuse_unknown(lock, ("commit",), f"{where}.lock")
        fields["commit"] = _read_commit(reader, lock, "commit", f"{where}.lock")
    return LockedKernel(**fields)


def _read_ours(reader: Reader, table: Mapping[str, Any], where: str) -> LockedKernel:
    reader.refuse_unknown(
        table, ("repo-id", "commit", "variants", "lfs-hashes", *_SELECTORS), where
    )
    return LockedKernel(
        **_read_dependency(reader, table, where, _SELECTORS, may_lack=True),
        commit=_read_commit(reader, table, "commit", where),
        variants=_read_hashes(reader, table, "variants", where, SHA256),
        lfs_hashes=_read_hashes(reader, table, "lfs-hashes", where, _OLD_HASH),
    )


def _read_old(reader: Reader, table: Mapping[str, Any], where: str) -> LockedKernel:
    reader.refuse_unknown(table, ("repo_id", "sha", "variants"), where)
    repo_id = reader.take_checked(
        table, "repo_id", where, repo_id_fault, kind="bad-value", required=True
    )
    hashes = {}
    variants = reader.take(table, "variants", dict, where, required=True) or {}
    for name, entry in variants.items():
        place = f"{where}.variants.{name}"
        if not reader.check_type(entry, dict, place):
            continue
        reader.refuse_unknown(entry, ("hash", "hash_type"), place)
        kind = reader.take(entry, "hash_type", str, place, required=True)
        if kind is not None and kind != _OLD_HASH_TYPE:
            reader.add(
                "bad-value", f"{place}.hash_type", f"expected {_OLD_HASH_TYPE}, found {kind!r}"
            )
        hashes[name] = reader.take_checked(
            entry, "hash", place, _hash_fault(_OLD_HASH), kind="bad-hash", required=True
        )
    return LockedKernel(
        repo_id=repo_id or "",
        commit=_read_commit(reader, table, "sha", where),
        lfs_hashes={name: text or "" for name, text in sorted(hashes.items())},
    )


def _read_dependency(
    reader: Reader,
    table: Mapping[str, Any],
    where: str,
    selectors: tuple[str, ...],
    *,
    may_lack: bool = False,
) -> dict[str, Any]:
    repo_id = reader.take_checked(
        table, "repo-id", where, repo_id_fault, kind="bad-value", required=True
    )
    given = [key for key in selectors if table.get(key) is not None]
    if len(given) > 1:
        reader.add("both-given", where, f"expected one of them, found {' and '.join(given)}")
    elif not given and not may_lack:
        reader.add("neither-given", where, f"expected {' or '.join(selectors)}, found neither")
    return {
        "repo_id": repo_id or "",
        "version": reader.take_number(table, "version", where),
        "version_range": reader.take(table, "version-range", str, where),
        "revision": reader.take(table, "revision", str, where),
    }


def _read_commit(reader: Reader, table: Mapping[str, Any], key: str, where: str) -> str:
    commit = reader.take_checked(table, key, where, commit_fault, kind="bad-commit", required=True)
    return commit or ""


def _read_hashes(
    reader: Reader, table: Mapping[str, Any], key: str, where: str, form: re.Pattern[str]
) -> dict[str, str]:
    hashes: dict[str, Any] = reader.take(table, key, dict, where) or {}
    for name in hashes:
        reader.take_checked(
            hashes, name, f"{where}.{key}", _hash_fault(form), kind="bad-hash", required=True
        )
    return dict(sorted(hashes.items()))


def _hash_fault(form: re.Pattern[str]) -> Callable[[str], str | None]:
    def fault(text: str) -> str | None:
        return None if form.fullmatch(text) else f"expected {form.pattern}, found {text!r}"

    return fault


def format_lock(kernels: tuple[LockedKernel, ...]) -> bytes:
    """Write our form: ``{"format": 1, "kernels": [...]}``, sorted, with a final newline."""
    return write_json(
        {
            "format": FORMAT,
            "kernels": [_format_kernel(kernel) for kernel in sorted(kernels, key=_order)],
        }
    )


def _format_kernel(kernel: LockedKernel) -> dict[str, Any]:
    fields = {
        "version": kernel.version,
        "version-range": kernel.version_range,
        "revision": kernel.revision,
        "lfs-hashes": dict(kernel.lfs_hashes) or None,
    }
    return {
        "repo-id": kernel.repo_id,
        "commit": kernel.commit,
        "variants": dict(kernel.variants),
        **{key: value for key, value in fields.items() if value is not None},
    }


def format_new_lock(kernels: tuple[LockedKernel, ...]) -> bytes:
    """Write the published client's form (0.17): requests and commits, nothing of the bytes.

    Raises:
        LockError: naming every kernel that was asked for by a range, which that form cannot say.
    """
    reader = Reader()
    entries = []
    for kernel in sorted(kernels, key=_order):
        if kernel.version is None and kernel.revision is None:
            asked = kernel.version_range or "a bare name"
            message = f"this form holds a version or a revision, {kernel.repo_id} has {asked!r}"
            reader.add("neither-given", kernel.repo_id, message)
        request = {
            "repo-id": kernel.repo_id,
            "version": kernel.version,
            "revision": kernel.revision,
        }
        dependency = {key: value for key, value in request.items() if value is not None}
        entries.append({"dependency": dependency, "lock": {"commit": kernel.commit}})
    if reader.faults:
        raise LockError(FILE_NAME, tuple(reader.faults))
    return write_json(entries)


def format_old_lock(kernels: tuple[LockedKernel, ...]) -> bytes:
    """Write the published client's older form (up to 0.16): commits and hashes of git objects.

    Raises:
        LockError: naming every kernel without such hashes, or with two commits.
    """
    reader = Reader()
    entries = []
    seen = set()
    for kernel in sorted(kernels, key=_order):
        if not kernel.lfs_hashes:
            reader.add("bad-hash", kernel.repo_id, "there are no hashes of git objects")
        if kernel.repo_id in seen:
            reader.add("duplicate", kernel.repo_id, "this form holds one commit of a repository")
        seen.add(kernel.repo_id)
        variants = {
            name: {"hash": text, "hash_type": _OLD_HASH_TYPE}
            for name, text in kernel.lfs_hashes.items()
        }
        entries.append({"repo_id": kernel.repo_id, "sha": kernel.commit, "variants": variants})
    if reader.faults:
        raise LockError(FILE_NAME, tuple(reader.faults))
    return write_json(entries)


def git_lfs_concat(files: Mapping[str, bytes], *, leave_out_bytecode: bool = True) -> str:
    """Compute the old format's hash of a variant, ``sha256-<hex>``.

    Clients up to 0.12.3 counted bytecode, later ones leave it out; a lock may be of either age,
    so whoever checks one accepts both.

    Args:
        files: for each path, relative to the variant, the raw 20 bytes of its git blob id or
            the raw 32 bytes of its LFS sha256.
        leave_out_bytecode: whether ``*.pyc`` and what is below ``__pycache__`` do not count.
    """
    whole = hashlib.sha256()
    for path, raw in sorted(files.items(), key=lambda item: item[0].encode()):
        if not (leave_out_bytecode and is_bytecode(path)):
            whole.update(path.encode())
            whole.update(raw)
    return f"sha256-{whole.hexdigest()}"
