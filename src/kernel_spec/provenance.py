"""The ``provenance`` of a ``metadata.json``: who built a variant and from what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernel_spec.document import Reader
from kernel_spec.names import commit_fault


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Who built a variant and from what.

    Attributes:
        builder_version: the builder's version.
        builder_commit: the commit that the builder is of; None where it was not told.
        builder_dirty: whether the builder's sources differed from that commit.
        kernel_commit: the commit that the kernel's sources are of; None where it was not told.
        kernel_dirty: whether the kernel's sources differed from that commit.
    """

    builder_version: str
    builder_commit: str | None = None
    builder_dirty: bool | None = None
    kernel_commit: str | None = None
    kernel_dirty: bool | None = None


def read_provenance(reader: Reader, document: Mapping[str, Any]) -> Provenance | None:
    """Read ``provenance`` of a metadata document; None where it is absent, or with faults noted.

    A key of a later time is left out.
    """
    table = reader.take(document, "provenance", dict, "")
    if table is None:
        return None
    builder = reader.take(table, "kernel-builder", dict, "provenance", required=True) or {}
    kernel = reader.take(table, "kernel", dict, "provenance")
    version = None
    if "kernel-builder" in table:
        where = "provenance.kernel-builder"
        version = reader.take(builder, "version", str, where, required=True)
    builder_commit, builder_dirty = _read_git_state(
        reader, builder, "provenance.kernel-builder", required=False
    )
    kernel_commit, kernel_dirty = (
        (None, None)
        if kernel is None
        else _read_git_state(reader, kernel, "provenance.kernel", required=True)
    )
    if version is None:
        return None
    return Provenance(
        builder_version=version,
        builder_commit=builder_commit,
        builder_dirty=builder_dirty,
        kernel_commit=kernel_commit,
        kernel_dirty=kernel_dirty,
    )


def format_provenance(provenance: Provenance) -> dict[str, Any]:
    """Write what ``provenance`` holds in a metadata document."""
    builder: dict[str, Any] = {"version": provenance.builder_version}
    document: dict[str, Any] = {"kernel-builder": builder}
    if provenance.builder_commit is not None:
        builder |= {
            "commit": provenance.builder_commit,
            "dirty": bool(provenance.builder_dirty),
        }
    if provenance.kernel_commit is not None:
        document["kernel"] = {
            "commit": provenance.kernel_commit,
            "dirty": bool(provenance.kernel_dirty),
        }
    return document


def _read_git_state(
    reader: Reader, table: Mapping[str, Any], where: str, *, required: bool
) -> tuple[str | None, bool | None]:
    """Read ``commit`` (or its old name ``sha``) and ``dirty``, which come together."""
    if "commit" in table and "sha" in table:
        reader.add("both-given", where, "expected commit or its old name sha, found both")
    key = "sha" if "sha" in table else "commit"
    required = required or any(table.get(name) is not None for name in (key, "dirty"))
    commit = reader.take_checked(
        table, key, where, commit_fault, kind="bad-commit", required=required
    )
    return commit, reader.take(table, "dirty", bool, where, required=required)
