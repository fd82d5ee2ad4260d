"""Which names a shared library defines: looked up in its own hash table, as the dynamic loader does.

libtorch defines more than a hundred thousand names; this reads a few hundred bytes for each that is asked
for. Source of the format: System V gABI, chapter 5, "Dynamic Section"; the GNU hash table as binutils
2.40 writes it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kernel_spec.errors import BinaryFormatError

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TAG = struct.Struct("<qQ")
_HASH_HEADER = struct.Struct("<IIII")
_SYMBOL = struct.Struct("<IBBHQQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5


class _Tables(NamedTuple):
    """Where the three tables begin in the file."""

    names: int
    symbols: int
    hashes: int


def find_defined(path: Path, names: Iterable[str]) -> frozenset[str]:
    """Return those of the mangled ``names`` that a shared library defines.

    Raises:
        BinaryFormatError: not a 64-bit little-endian ELF library with a GNU hash table.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as err:
            raise BinaryFormatError(f"{path}: empty") from err
        with data:
            try:
                tables = _find_tables(data)
                return frozenset(name for name in names if _defines(data, tables, name))
            except (struct.error, IndexError, ZeroDivisionError, StopIteration) as err:
                raise BinaryFormatError(f"{path}: no readable table of its symbols") from err


def is_loadable(path: Path) -> bool:
    """Say whether a file has what the dynamic loader maps: an ELF header, and all of its segments.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(0)
        head = stream.read(_HEADER.size)
        if head[:4] != b"\x7fELF" or len(head) < _HEADER.size:
            return False
        if head[4:6] != b"\x02\x01":
            return True  # of a machine that this module does not read
        _, _, _, _, start, _, _, _, length, count, *_ = _HEADER.unpack(head)
        if length != _SEGMENT.size or start + length * count > size:
            return False
        stream.seek(start)
        segments = _SEGMENT.iter_unpack(stream.read(length * count))
        return all(s[2] + s[5] <= size for s in segments if s[0] == _PT_LOAD)


def _find_tables(data: mmap.mmap) -> _Tables:
    if data[:6] != b"\x7fELF\x02\x01":
        raise struct.error("not ELF of 64 bits")
    _, _, _, _, start, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
    segments = [_SEGMENT.unpack_from(data, start + size * index) for index in range(count)]
    [(_, _, offset, _, _, length, *_)] = [s for s in segments if s[0] == _PT_DYNAMIC][:1] or [
        _SEGMENT.unpack_from(b"")
    ]
    tags = dict(_TAG.iter_unpack(data[offset : offset + length // _TAG.size * _TAG.size]))

    def place(tag: int) -> int:
        address = tags.get(tag)
        for kind, _, begin, virtual, _, in_file, *_ in segments:
            if kind == _PT_LOAD and address is not None and 0 <= address - virtual < in_file:
                return int(begin + address - virtual)
        raise struct.error("a table is not in the file")

    return _Tables(place(_DT_STRTAB), place(_DT_SYMTAB), place(_DT_GNU_HASH))


def _defines(data: mmap.mmap, tables: _Tables, name: str) -> bool:
    text = name.encode()
    wanted = gnu_hash(text)
    buckets, first, words, shift = _HASH_HEADER.unpack_from(data, tables.hashes)
    bloom = tables.hashes + _HASH_HEADER.size
    (word,) = struct.unpack_from("<Q", data, bloom + wanted // 64 % words * 8)
    if not (word >> wanted % 64) & (word >> (wanted >> shift) % 64) & 1:
        return False
    bucket = bloom + words * 8
    chain = bucket + buckets * 4
    (index,) = struct.unpack_from("<I", data, bucket + wanted % buckets * 4)
    while index >= first:
        (found,) = struct.unpack_from("<I", data, chain + (index - first) * 4)
        if found | 1 == wanted | 1:
            at, _, _, section, _, _ = _SYMBOL.unpack_from(data, tables.symbols + index * 24)
            begin = tables.names + at
            if section and data[begin : begin + len(text) + 1] == text + b"\0":
                return True
        if found & 1:
            return False
        index += 1
    return False


def gnu_hash(name: bytes) -> int:
    """Return the hash of a symbol's name in the GNU hash table: 32 bits."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
