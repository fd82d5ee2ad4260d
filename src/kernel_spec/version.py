"""Two-part versions (torch 2.13, CUDA 13.0), compared by number and written without a dot."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LEADING = re.compile(r"(\d+)\.(\d+)", re.ASCII)


@dataclass(frozen=True, order=True, slots=True)
class MajorMinor:
    """A version as variant names carry it: the first two numbers, compared as numbers."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


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
