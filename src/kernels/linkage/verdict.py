"""The value that a judgement of libraries gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernel_spec.compat import Reason


class Verdict(NamedTuple):
    """What the bytes of a variant's libraries say.

    Attributes:
        reasons: why they would not link here; empty where nothing speaks against it.
        archs: what the CUDA code in them was compiled for (``9.0a``, ``8.0+PTX``); empty where
            there is none.
    """

    reasons: tuple[Reason, ...] = ()
    archs: tuple[str, ...] = ()


def holds_libraries(files: Iterable[str]) -> bool:
    """Say whether a variant has anything to judge."""
    return any(path.endswith(".so") for path in files)
