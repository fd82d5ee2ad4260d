"""Two-part versions (torch 2.13, CUDA 13.0), compared by number and written without a dot."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LEADING = re.compile(r"(\d+)\.(\d+)", re.ASCII)
# A release by PEP 440, and its first two numbers. Whatever else comes before the local part (a0, rc1,
# .dev20260101) says that it comes before one. Generated files of kernels have this pattern, too.
RELEASE = r"(\d+)\.(\d+)(?:\.\d+)*(?:\.post\d+)?(?:\+.*)?"


@dataclass(frozen=True, order=True, slots=True)
class MajorMinor:
    """A version as variant names carry it: the first two numbers, compared as numbers."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def is_release(text: str) -> bool:
    """Say whether a version text is that of a release, whose C++ interface is that of its two numbers.

    ``2.11.0``, ``2.11.0+cu130`` and ``2.11.0.post1`` are; ``2.11.0rc1``, ``2.11.0a0+git1234`` and what
    is no version are not.
    """
    return re.fullmatch(RELEASE, text, re.ASCII) is not None


def parse_major_minor(text: str) -> MajorMinor:
    """Read the first two numbers of a version text; the rest is ignored.

    ``2.13.0+cpu`` is 2.13 and ``13.0`` is 13.0.

    Raises:
        ValueError: the text does not begin with two numbers joined by a dot.
    """
    match = _LEADING.match(text)
    if match is None:
        raise ValueError(f"expected a version such as 2.13, found {text!r}")
    return MajorMinor(int(match[1]), int(match[2]))
