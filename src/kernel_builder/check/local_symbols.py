"""The names of a library's own functions, from its full symbol table or from that of its twin.

A library for CUDA is linked without names. Its twin is linked from the same objects with them, and
tells the names where both have the same code at the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def read_local_symbols(
    library: Path, twin: Path | None, offsets: Iterable[int]
) -> Mapping[int, tuple[str, ...]]:
    """Return the names of the functions that begin at these places; none where nothing tells them.

    Args:
        library: the library, as it was just linked.
        twin: the same, linked with names; None: the library has them itself.
        offsets: the places, from the beginning of the library.
    """
    if twin is not None and _read_code(library) != _read_code(twin):
        return {}
    wanted = set(offsets)
    found: dict[int, list[str]] = {}
    with (twin or library).open("rb") as stream:
        table = _open(stream).get_section_by_name(".symtab")
        for symbol in table.iter_symbols() if table is not None else ():
            place = symbol["st_value"]
            if place in wanted and symbol["st_info"]["type"] == "STT_FUNC":
                found.setdefault(place, []).append(symbol.name)
    return {place: tuple(sorted(names)) for place, names in found.items()}


def _read_code(library: Path) -> tuple[int, bytes] | None:
    """Return where the code of a library is, and the code."""
    with library.open("rb") as stream:
        section = _open(stream).get_section_by_name(".text")
        return None if section is None else (section["sh_addr"], section.data())


def _open(stream: Any) -> Any:
    from elftools.elf.elffile import ELFFile

    return ELFFile(stream)
