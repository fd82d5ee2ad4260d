"""Objects that are compiled before the id of their ops is known: under a draft of the id, whose place it takes.

The id is a hash of all sources, so an object that holds it would be compiled again whenever one of them
changes. The draft has the length of the id and depends on the project's name alone. Writing the one over
the other is right only where the compiler has not looked at the text, which is made sure of twice: the
sources use the name in known ways alone, and in the object it stands whole wherever a part of it does
(docs/decisions/0049).
"""

from __future__ import annotations

import io
import operator
import re
import struct
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from kernel_builder.environment import Environment
from kernel_builder.toolchain.cpu import Family
from kernel_builder.units import CompileUnit

# What stands for the hash of the sources. No letter comes twice, so a part tells its place, and none is a
# digit of a hash.
_TAIL = "QzXjVkWqZxJv"
# A compiler that takes a text of twelve bytes apart for copying leaves a piece of at least four.
_PIECE = 4

_NAMES = (b"TORCH_EXTENSION_NAME", b"TVM_FFI_EXTENSION_NAME", b"KERNEL_OP")
_MACROS = (rb"(?:STABLE_)?TORCH_LIBRARY(?:_IMPL)?_EXPAND", rb"REGISTER_EXTENSION")
# These make one text of the name, which torch or Python is handed, and parts of names of functions.
_PLAIN = re.compile(
    rb"\b(?:%s\s*\(\s*TORCH_EXTENSION_NAME\s*,|%s\s*\(\s*TORCH_EXTENSION_NAME\s*\)" % _MACROS
    + rb'|findSchemaOrThrow\s*\(\s*KERNEL_OP\s*\(\s*"[^"\\\n]*"\s*\)\s*,)'
)
_REDEFINED = re.compile(
    rb"#\s*define\s+(?:(?:STABLE_)?TORCH_LIBRARY\w*|REGISTER_EXTENSION|KERNEL_(?:PASTE|QUOTE)_?"
    rb"|KERNEL_OP|findSchemaOrThrow|C10_STRINGIZE\w*)\b"
)
_MACRO_WORDS = (b"LIBRARY_EXPAND", b"LIBRARY_IMPL_EXPAND", b"REGISTER_EXTENSION")
_COMMENT = re.compile(rb"^[ \t]*//(?:(?!\*/).)*$", re.MULTILINE)

# Where the name of an op's namespace is text that nothing else was computed from.
_TEXT_SECTIONS = frozenset({".strtab", ".shstrtab", ".debug_str", ".debug_line_str"})
_COMPRESSED = 1 << 11  # SHF_COMPRESSED
_SYMBOL = struct.Struct("<I20x")  # st_name of an Elf64_Sym


class Use(Enum):
    """How a source uses the id of its ops."""

    NONE = "none"
    PLAIN = "plain"
    OTHER = "other"


def draft_of(op_id: str) -> str:
    """Return what stands for an id while objects are compiled; it has the same length."""
    return op_id[: -len(_TAIL)] + _TAIL


def read_use(source: bytes) -> Use:
    """Say how a source uses the id of its ops: not, in the macros of registration.h alone, or otherwise."""
    text = _COMMENT.sub(b"", source.replace(b"\\\r\n", b"").replace(b"\\\n", b""))
    if _REDEFINED.search(text):
        return Use.OTHER
    mentions = sum(text.count(name) for name in _NAMES)
    plain = len(_PLAIN.findall(text))
    return Use.OTHER if mentions > plain else Use.PLAIN if mentions else Use.NONE


def read_uses(paths: Iterable[str], stage: Path) -> frozenset[Use]:
    """Say how staged files use the id of their ops."""
    return frozenset(read_use((stage / path).read_bytes()) for path in paths)


def takes_draft(
    unit: CompileUnit, headers: frozenset[Use], environment: Environment, stage: Path
) -> bool:
    """Say whether a file is to be compiled under a draft.

    Args:
        unit: the file.
        headers: how the project's headers use the id; they are the same for each of its files.
        environment: what it is built with.
        stage: the staged sources.
    """
    toolchain = environment.toolchain
    # With these, the object is byte for byte that of the real name, and a piece of it in code can be seen.
    if toolchain.family is not Family.GCC or toolchain.cpu != "x86_64":
        return False
    flags = " ".join((*unit.cxx_flags, *unit.backend_flags)).encode()
    uses = headers | read_uses([unit.source], stage)
    told = any(name in flags for name in (*_NAMES, *_MACRO_WORDS))
    return Use.PLAIN in uses and Use.OTHER not in uses and not told


def uses_plainly(paths: Iterable[str], *, stage: Path, own: Path) -> bool:
    """Say whether all that a compiler read uses the id of the ops in known ways alone.

    Args:
        paths: the files that it read, as it says.
        stage: the staged sources, which it ran in.
        own: the directory of our own headers, which are known.
    """
    for path in paths:
        place = stage / path
        if place.resolve().is_relative_to(own.resolve()):
            continue
        content = place.read_bytes()
        if not Path(path).is_absolute():
            if read_use(content) is Use.OTHER:
                return False
        elif any(word in content for word in (*_NAMES, *_MACRO_WORDS)):
            return False
    return True


def find_doubt(content: bytes, draft: str) -> str | None:
    """Find why the id cannot be written over its draft in an object; None: it can.

    Args:
        content: the object, an ELF file of 64 bits.
        draft: the draft that it was compiled under.

    Returns:
        Half a sentence.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    places = [match.start() for match in re.finditer(re.escape(draft.encode()), content)]
    if not places:
        return "the object does not hold its name"
    try:
        file = ELFFile(io.BytesIO(content))
        sections = list(file.iter_sections())
        names = set(_find_names(sections, sections[file["e_shstrndx"]]))
    except ELFError as err:
        return f"the object cannot be read: {err}"
    return (
        _find_hiding(sections)
        or _find_piece(content, len(places))
        or _find_odd_place(sections, names, places, len(draft))
    )


def put_op_id(content: bytes, op_id: str) -> bytes:
    """Write an id over its draft in an object that :func:`find_doubt` finds nothing in."""
    return content.replace(draft_of(op_id).encode(), op_id.encode())


def put_pieces(content: bytes, op_id: str, *, sibling: bytes, sibling_id: str) -> bytes | None:
    """Write an id over the pieces of its draft that a compiler has made of it.

    Where these are, another object tells, of the same source with the same flags. As the draft and an id
    have no letter in common, the two differ wherever a letter of the name stands.

    Args:
        content: the object with the draft.
        op_id: the id.
        sibling: the other object.
        sibling_id: the id that it was compiled with.

    Returns:
        The object with the id; None where the two differ in more than letters of the name.
    """
    if len(content) != len(sibling):
        return None
    both = (int.from_bytes(each, "little") for each in (content, sibling))
    difference = operator.xor(*both).to_bytes(len(content), "little")
    letters = dict(
        zip(
            _TAIL.encode(),
            zip(sibling_id[-len(_TAIL) :].encode(), op_id[-len(_TAIL) :].encode(), strict=True),
            strict=True,
        )
    )
    made = bytearray(content)
    for match in re.finditer(rb"[^\0]", difference):
        old, new = letters.get(content[match.start()], (None, 0))
        if old != sibling[match.start()]:
            return None
        made[match.start()] = new
    return bytes(made)


def _find_hiding(sections: list[Any]) -> str | None:
    for section in sections:
        if section["sh_flags"] & _COMPRESSED or section.name.startswith(".gnu.lto_"):
            return f"section {section.name} hides what it holds"
    return None


def _find_piece(content: bytes, whole: int) -> str | None:
    pieces = (_TAIL[at : at + _PIECE].encode() for at in range(len(_TAIL) - _PIECE + 1))
    if any(content.count(piece) != whole for piece in pieces):
        return "the compiler took the text of its name apart"
    return None


def _find_odd_place(
    sections: list[Any], names: set[int], places: list[int], length: int
) -> str | None:
    for place in places:
        name = _find_section(sections, place)
        if name not in _TEXT_SECTIONS and not name.startswith(".rodata"):
            return f"its name stands in section {name or 'headers'}"
        # An assembler stores a name that another ends with as a part of that.
        if names.intersection(range(place + 1, place + length)):
            return "another name is stored as a part of its name"
    return None


def _find_section(sections: Iterable[Any], place: int) -> str:
    for section in sections:
        begin = section["sh_offset"]
        if section["sh_type"] != "SHT_NOBITS" and begin <= place < begin + section["sh_size"]:
            return str(section.name)
    return ""


def _find_names(sections: list[Any], table: Any) -> Iterator[int]:
    """Find where in the file the names of symbols begin, and those of sections, which are in a table."""
    for section in sections:
        yield int(table["sh_offset"] + section["sh_name"])
        if section["sh_type"] == "SHT_SYMTAB":
            strings = sections[section["sh_link"]]["sh_offset"]
            yield from (strings + name for (name,) in _SYMBOL.iter_unpack(section.data()))
