"""Where two builds of the same files differ: which file, and which section of a library. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

_ELF = b"\x7fELF"
_SHOWN = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A file that is not the same on both sides.

    Attributes:
        path: its path in the variant.
        details: what differs in it, a line each.
    """

    path: str
    details: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.path}:", *(f"  {detail}" for detail in self.details)])


def compare_files(
    published: Mapping[str, bytes], rebuilt: Mapping[str, bytes]
) -> tuple[Difference, ...]:
    """Return the files that differ, libraries first: what differs elsewhere often follows from them."""
    found = []
    for path in sorted({*published, *rebuilt}, key=lambda path: (not path.endswith(".so"), path)):
        old, new = published.get(path), rebuilt.get(path)
        if old == new:
            continue
        details = ["only published"] if new is None else ["only rebuilt"]
        if old is not None and new is not None:
            details = compare_bytes(path, old, new)
        found.append(Difference(path=path, details=tuple(details)))
    return tuple(found)


def compare_bytes(path: str, old: bytes, new: bytes) -> list[str]:
    """Say where two versions of a file differ: sections of a library, keys of JSON, lines of a text."""
    if old.startswith(_ELF) or new.startswith(_ELF):
        return _compare_elf(old, new)
    if path.endswith(".json"):
        found = _compare_json(old, new)
        if found:
            return found
    try:
        pairs = zip(old.decode().splitlines(), new.decode().splitlines(), strict=False)
        for number, (before, after) in enumerate(pairs, 1):
            if before != after:
                return [f"line {number}: published {before!r}, rebuilt {after!r}"]
    except UnicodeDecodeError:
        pass
    return [_first_difference(old, new)]


def _first_difference(old: bytes, new: bytes) -> str:
    at = next(
        (at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two),
        min(len(old), len(new)),
    )
    return f"{len(old)} bytes published, {len(new)} rebuilt; the first difference is at byte {at}"


def _compare_elf(old: bytes, new: bytes) -> list[str]:
    before, after = _read_sections(old), _read_sections(new)
    if before is None or after is None:
        side = "published" if before is None else "rebuilt"
        return [f"the {side} one is no whole library", _first_difference(old, new)]
    details = []
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            details.append(f"section {name}: only published")
        elif name not in before:
            details.append(f"section {name}: only rebuilt")
        elif before[name] != after[name]:
            details.append(f"section {name}: {_first_difference(before[name], after[name])}")
    return details or [
        f"no section differs, but what is around them: {_first_difference(old, new)}"
    ]


def _read_sections(data: bytes) -> dict[str, bytes] | None:
    """Read the sections of an ELF file by name; None where it is none. A name may stand twice."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    found: dict[str, bytes] = {}
    try:
        for section in ELFFile(BytesIO(data)).iter_sections():
            name = section.name or "(unnamed)"
            while name in found:
                name += "'"
            found[name] = b"" if section["sh_type"] == "SHT_NOBITS" else section.data()
    except (ELFError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return found


def _compare_json(old: bytes, new: bytes) -> list[str]:
    try:
        before, after = dict(_flatten(json.loads(old))), dict(_flatten(json.loads(new)))
    except ValueError:
        return []
    changed = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    lines = [
        f"{key}: published {_show(before.get(key))}, rebuilt {_show(after.get(key))}"
        for key in changed[:_SHOWN]
    ]
    more = len(changed) - _SHOWN
    return lines + ([f"and {more} more keys"] if more > 0 else [])


def _show(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _flatten(each, f"{path}.{key}" if path else key)
    else:
        yield path, value
