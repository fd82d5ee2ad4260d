"""The listing of a commit: its parent and files, in the canonical form that its id hashes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernel_spec.blob import begin_blob
from kernel_spec.document import Reader, naming, write_json
from kernel_spec.errors import FormatError, IntegrityError
from kernel_spec.names import SHA1, SHA256, path_fault
from kernel_spec.wire import TreeFile

FORMAT = 1
# A commit goes by the sha1 of its listing.
COMMIT_ID = SHA1
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of a commit: its parent and its files, sorted by path."""

    parent: str | None
    files: tuple[TreeFile, ...]


def format_listing(listing: Listing) -> bytes:
    """Write a listing in its canonical form; the same listing gives the same bytes."""
    files = [
        {
            "executable": file.executable,
            "oid": file.oid,
            "path": file.path,
            "sha256": file.sha256,
            "size": file.size,
        }
        for file in sorted(listing.files, key=lambda file: file.path)
    ]
    return write_json({"files": files, "format": FORMAT, "parent": listing.parent}, indent=None)


def parse_listing(data: bytes) -> Listing:
    """Read a listing.

    Raises:
        FormatError: not of that form, or of a later format.
    """
    reader = Reader()
    document = reader.load(data)
    if not reader.faults and reader.check_type(document, dict, ""):
        form = reader.take_number(document, "format", "", required=True)
        if form is not None and form != FORMAT:
            raise FormatError(
                f"listing of format {form}; this version reads format {FORMAT}: upgrade kernels"
            )
        parent = reader.take(document, "parent", str, "")
        if parent is not None and COMMIT_ID.fullmatch(parent) is None:
            reader.add("bad-commit", "parent", f"expected 40 hex digits, found {parent!r}")
        files = []
        for index, entry in enumerate(
            reader.take(document, "files", list, "", required=True) or ()
        ):
            if reader.check_type(entry, dict, f"files[{index}]"):
                files.append(_read_file(reader, entry, f"files[{index}]"))
        if not reader.faults and _is_ordered(files):
            return Listing(parent, tuple(files))
    faults = "; ".join(map(str, reader.faults)) or "its paths are not in order, or not unique"
    raise FormatError(f"not a listing: {faults}")


def _read_file(reader: Reader, entry: Mapping[str, Any], where: str) -> TreeFile:
    path = reader.take_checked(entry, "path", where, path_fault, kind="bad-path", required=True)
    size = reader.take_number(entry, "size", where, required=True)
    oid = _read_hash(reader, entry, "oid", where, SHA1)
    sha256 = _read_hash(reader, entry, "sha256", where, SHA256)
    executable = reader.take(entry, "executable", bool, where, required=True)
    return TreeFile(
        path=path or "", size=size or 0, oid=oid or "", sha256=sha256, executable=bool(executable)
    )


def _read_hash(
    reader: Reader, entry: Mapping[str, Any], key: str, where: str, form: re.Pattern[str]
) -> str | None:
    def find_fault(text: str) -> str | None:
        return None if form.fullmatch(text) else f"expected {form.pattern}, found {text!r}"

    return reader.take_checked(entry, key, where, find_fault, kind="bad-hash", required=True)


def _is_ordered(files: list[TreeFile]) -> bool:
    return all(before.path < after.path for before, after in pairwise(files))


def commit_id(data: bytes) -> str:
    """Return the commit id of a listing's bytes: 40 hex digits."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def hash_file(path: Path, *, copy_to: Path | None = None) -> tuple[int, str, str]:
    """Read a file once and return its size, its git blob id and its sha256.

    Args:
        path: the file.
        copy_to: a file to write the same bytes to; they need not be on the disk yet.

    Raises:
        IntegrityError: the file changed while it was read.
    """
    with path.open("rb", buffering=0) as source:
        size = os.fstat(source.fileno()).st_size
        blob = begin_blob(size)
        whole = hashlib.sha256()
        read = 0
        with ExitStack() as stack:
            copy = None
            if copy_to is not None:
                stack.enter_context(naming(copy_to))
                copy = stack.enter_context(copy_to.open("wb"))
            while block := _read_block(source, path):
                read += len(block)
                blob.update(block)
                whole.update(block)
                if copy is not None:
                    copy.write(block)
    if read != size:
        raise IntegrityError(f"{path}: changed while it was read, from {size} to {read} bytes")
    return size, blob.hexdigest(), whole.hexdigest()


def _read_block(source: FileIO, path: Path) -> bytes:
    with naming(path):
        return source.read(_BLOCK)
