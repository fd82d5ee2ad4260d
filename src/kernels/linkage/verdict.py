"""The value that a judgement of libraries gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kernel_spec.compat import Reason


class SharedSymbol(NamedTuple):
    """A variable that a library shares with every other one of the process that has its name.

    The dynamic loader keeps one of each GNU-unique name, whatever else keeps libraries apart.

    Attributes:
        library: the POSIX path of the library in its variant.
        name: its mangled name.
        size: bytes.
    """

    library: str
    name: str
    size: int


class Verdict(NamedTuple):
    """What the bytes of a variant's libraries say.

    Attributes:
        reasons: why they would not link here; empty where nothing speaks against it.
        archs: what the CUDA code in them was compiled for (``9.0a``, ``8.0+PTX``); empty where
            there is none.
        shared: what they share with other libraries of a process; not what torch and the C++
            library share by design.
        per_torch: why the per-torch library for the torch here would not link. The variant works
            without it; only where it is no whole file is that among the reasons, too.
    """

    reasons: tuple[Reason, ...] = ()
    archs: tuple[str, ...] = ()
    shared: tuple[SharedSymbol, ...] = ()
    per_torch: tuple[Reason, ...] = ()


def holds_libraries(files: Iterable[str]) -> bool:
    """Say whether a variant has anything to judge."""
    return any(path.endswith(".so") for path in files)
