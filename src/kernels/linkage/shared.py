"""Keeps which variables the op libraries of this process share, whatever else keeps those libraries apart.

The dynamic loader keeps one of each GNU-unique name for a whole process, for libraries loaded with
``RTLD_LOCAL`` too. Two kernels whose code defines the same one would write to each other's variable.
Source: the ELF gABI as GNU extends it, ``STB_GNU_UNIQUE`` (binutils 2.40, glibc 2.36).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from kernels.forking import Renewed
from kernels.linkage.verdict import SharedSymbol


class _Holder(NamedTuple):
    """The library that had a name first."""

    path: Path
    sha256: str
    size: int


class Clash(NamedTuple):
    """Two libraries of other bytes that share variables.

    Attributes:
        loaded: the library that was there first.
        library: the one that is to be loaded.
        names: the mangled names that both define.
        odd: those of them whose sizes differ.
    """

    loaded: Path
    library: Path
    names: tuple[str, ...]
    odd: tuple[str, ...]


_state = Renewed(threading.Lock)
_holders: dict[str, _Holder] = {}


def claim(
    root: Path, sha256: Mapping[str, str], shared: Iterable[SharedSymbol]
) -> tuple[Clash, ...]:
    """Note the shared variables of a variant that is to be loaded; return what it shares with others.

    Where sizes differ nothing is noted: that variant is not to be loaded.

    Args:
        root: the variant's directory.
        sha256: the hex sha256 of its files, by POSIX path; equal libraries are one library.
        shared: what its libraries define.
    """
    found: dict[tuple[Path, Path], list[SharedSymbol]] = {}
    fresh: dict[str, _Holder] = {}
    with _state.lock:
        for symbol in shared:
            ours = _Holder(root / symbol.library, sha256[symbol.library], symbol.size)
            holder = _holders.get(symbol.name)
            if holder is None:
                fresh.setdefault(symbol.name, ours)
            elif holder.sha256 != ours.sha256:
                found.setdefault((holder.path, ours.path), []).append(symbol)
        clashes = tuple(
            Clash(
                loaded,
                library,
                tuple(s.name for s in symbols),
                tuple(s.name for s in symbols if s.size != _holders[s.name].size),
            )
            for (loaded, library), symbols in found.items()
        )
        if not any(clash.odd for clash in clashes):
            _holders.update(fresh)
    return clashes


def forget() -> None:
    """Forget what this process has loaded; for tests."""
    _holders.clear()
