"""What a commit does, read from the lines in which clients send it.

The body is newline-delimited JSON: a header, then one operation a line (``key`` and ``value``), as
huggingface_hub writes it.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kernel_hub.errors import RequestError, RequestTooLargeError
from kernel_hub.service.received import load_received
from kernel_spec.names import COMMIT, SHA256, path_fault

# Clients are told to send files up to this size within the commit, and larger ones before it.
INLINE_LIMIT = 10 * 1024**2
# The published builder has Xet alone for larger ones, and sends them within the commit otherwise.
LINE_LIMIT = 64 * 1024**2 // 3 * 4 + 64 * 1024
OPERATIONS_LIMIT = 25_000
BODY_LIMIT = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class AddFile:
    """A file whose bytes came with the commit and now lie at a place."""

    path: str
    place: Path


@dataclass(frozen=True, slots=True)
class AddLarge:
    """A file whose bytes were uploaded before, or are in the repository: by sha256."""

    path: str
    sha256: str
    size: int | None


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file that goes."""

    path: str


@dataclass(frozen=True, slots=True)
class DeleteFolder:
    """A folder that goes, with all below it."""

    path: str


Operation = AddFile | AddLarge | DeleteFile | DeleteFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitRequest:
    """A commit that is asked for.

    Attributes:
        parent: the commit that the branch must be at, or None where any will do.
        operations: what it does, in order.
        summary: one line about it; kept of a proposal alone, since a commit is the hash of its files.
        description: more about it.
    """

    parent: str | None
    operations: tuple[Operation, ...]
    summary: str = ""
    description: str = ""


def read_commit(body: BinaryIO, folder: Path, *, max_file_size: int) -> CommitRequest:
    """Read a commit; the bytes that came with it are written below a folder.

    Args:
        body: the lines.
        folder: an empty folder for the bytes.
        max_file_size: the size in bytes of the largest file that is taken.

    Raises:
        RequestError: the body is not of that form; the message names the line.
        RequestTooLargeError: a line, a file, or their number is beyond the limit.
    """
    header: dict[str, Any] | None = None
    operations: list[Operation] = []
    number = 0
    while line := body.readline(LINE_LIMIT + 1):
        number += 1
        if len(line) > LINE_LIMIT:
            raise RequestTooLargeError(
                f"Line {number} of the commit has more than {LINE_LIMIT} bytes; "
                "files as large as that are uploaded before the commit (uploadMode lfs)."
            )
        if not line.strip():
            continue
        key, value = _read_line(line, number)
        match key, header:
            case "header", None:
                header = value
            case "header", _:
                raise RequestError(f"Line {number} of the commit is a second header.")
            case _, None:
                raise RequestError(f"Line {number} of the commit stands before its header.")
            case _:
                operation = _read_operation(key, value, number, folder)
                if isinstance(operation, AddFile) and (
                    operation.place.stat().st_size > max_file_size
                ):
                    raise RequestTooLargeError(
                        f"{operation.path[:200]}: this hub takes files of at most {max_file_size} bytes."
                    )
                operations.append(operation)
        if len(operations) > OPERATIONS_LIMIT:
            raise RequestTooLargeError(f"The commit has more than {OPERATIONS_LIMIT} operations.")
    if header is None:
        raise RequestError("The commit has no header line.")
    if not operations:
        raise RequestError("The commit has no operation.")
    summary, description = (header.get(key) for key in ("summary", "description"))
    return CommitRequest(
        parent=_read_parent(header),
        operations=tuple(operations),
        summary=summary if isinstance(summary, str) else "",
        description=description if isinstance(description, str) else "",
    )


def _read_line(line: bytes, number: int) -> tuple[str, dict[str, Any]]:
    try:
        document = load_received(line)
    except ValueError as err:
        raise RequestError(f"Line {number} of the commit is not JSON in UTF-8.") from err
    if not (
        isinstance(document, dict)
        and isinstance(document.get("key"), str)
        and isinstance(document.get("value"), dict)
    ):
        raise RequestError(f"Line {number} of the commit: expected an object with key and value.")
    return document["key"], document["value"]


def _read_parent(header: dict[str, Any]) -> str | None:
    parent = header.get("parentCommit")
    if parent is None:
        return None
    if not isinstance(parent, str) or COMMIT.fullmatch(parent) is None:
        raise RequestError("parentCommit: expected the 40 hex digits of a commit.")
    return parent


def _read_operation(key: str, value: dict[str, Any], number: int, folder: Path) -> Operation:
    where = f"Line {number} of the commit"
    path = value.get("path")
    if not isinstance(path, str):
        raise RequestError(f"{where}: path: expected a text.")
    if key == "deletedFolder":
        path = path.rstrip("/")
    fault = path_fault(path)
    if fault is not None:
        raise RequestError(f"{where}: unsafe path {path[:200]!r}: {fault}.")
    match key:
        case "file":
            place = folder / str(number)
            place.write_bytes(_read_content(value, where))
            return AddFile(path, place)
        case "lfsFile":
            return _read_large(path, value, where)
        case "deletedFile":
            return DeleteFile(path)
        case "deletedFolder":
            return DeleteFolder(path)
        case _:
            raise RequestError(f"{where}: this hub knows no operation {key[:50]!r}.")


def _read_content(value: dict[str, Any], where: str) -> bytes:
    content, encoding = value.get("content"), value.get("encoding", "utf-8")
    if not isinstance(content, str):
        raise RequestError(f"{where}: content: expected a text.")
    try:
        match encoding:
            case "base64":
                return base64.b64decode(content, validate=True)
            case "utf-8":
                return content.encode()
            case _:
                raise RequestError(f"{where}: encoding: expected base64 or utf-8.")
    except (binascii.Error, UnicodeEncodeError) as err:
        raise RequestError(f"{where}: content is not {encoding}.") from err


def _read_large(path: str, value: dict[str, Any], where: str) -> AddLarge:
    sha256, size = value.get("oid"), value.get("size")
    if value.get("algo", "sha256") != "sha256":
        raise RequestError(f"{where}: algo: expected sha256.")
    if not isinstance(sha256, str) or SHA256.fullmatch(sha256) is None:
        raise RequestError(f"{where}: oid: expected 64 hex digits, found {repr(sha256)[:80]}.")
    if size is not None and (type(size) is not int or size < 0):
        raise RequestError(f"{where}: size: expected a number of bytes, found {repr(size)[:50]}.")
    return AddLarge(path, sha256, size)
