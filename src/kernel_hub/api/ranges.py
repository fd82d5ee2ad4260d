"""Which bytes of a file an HTTP request wants (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernel_hub.errors import RangeError

# One range only, of numbers that any file size fits in.
RANGE = re.compile(r"bytes=[ \t]*(\d{0,19})-(\d{0,19})[ \t]*", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a file: from ``start`` up to, not with, ``stop``."""

    start: int
    stop: int


def parse_range(header: str | None, size: int) -> Span | None:
    """Read a ``Range`` header; None means the whole file.

    A header that is not a single byte range is passed over, as the RFC allows: several ranges
    in one answer serve nobody here.

    Raises:
        RangeError: the range begins behind the end.
    """
    match = None if header is None else RANGE.fullmatch(header)
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        last = int(match[2])
        if last == 0 or size == 0:
            raise RangeError(size)
        return Span(max(0, size - last), size)
    start = int(match[1])
    stop = int(match[2]) + 1 if match[2] else size
    if stop <= start and match[2]:
        return None
    if start >= size:
        raise RangeError(size)
    return Span(start, min(stop, size))


def matches(header: str | None, etag: str) -> bool:
    """Say whether an ``If-None-Match`` header names the entity tag (quoted), or any at all."""
    if header is None:
        return False
    tags = (tag.strip().removeprefix("W/") for tag in header.split(","))
    return any(tag in (etag, "*") for tag in tags)
