"""Parts of a wheel, unpacked without the rest of it: entries that lie together, pieces of one entry.

A wheel is a zip archive (PKWARE's APPNOTE, 4.3.7): each entry is a header and the packed bytes behind
it. These are DEFLATE (RFC 1951): a row of blocks, whose data may repeat what was unpacked in the last
32768 bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

_HEADER = struct.Struct("<4s2xHH8xIIHH")  # magic, flags, method, packed size, size, name, extra
_MAGIC = b"PK\x03\x04"
_STORED, _DEFLATED = 0, 8
# Bit 0: encrypted; bit 3: the sizes come after the bytes.
_UNREADABLE = 0b1001
_WINDOW = bytes(32768)
_SYMBOL = struct.Struct("<IxxHQQ")  # name, section, value, size: Elf64_Sym of the ELF specification
_UNDEFINED = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a wheel, and where they begin in it."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a packed entry.

    Attributes:
        bit: where unpacking begins, at a DEFLATE block: a bit of the wheel, from the lowest of its
            first byte.
        skip: how many bytes are unpacked before the piece.
        size: its bytes.
    """

    bit: int
    skip: int
    size: int


def read_bytes(parts: Sequence[Part], start: int, end: int | None = None) -> bytes:
    """Return bytes of a wheel; without an end, up to where its part ends.

    Raises:
        ValueError: no part has them.
    """
    for part in parts:
        last = part.offset + len(part.data)
        if part.offset <= start < last and (end is None or end <= last):
            return part.data[start - part.offset : None if end is None else end - part.offset]
    raise ValueError(f"bytes {start} to {end} of the wheel are in no part that is here")


def unpack_piece(parts: Sequence[Part], piece: Piece) -> bytes:
    """Unpack a piece of an entry.

    What lies before its first block is not known here, and zeros stand for it. So whoever pins a
    piece chooses one whose bytes come out right all the same: since 32768 bytes that repeat nothing
    lie between, such as a table of hashes.

    Raises:
        ValueError: the bytes are not there, or not packed as expected.
    """
    byte, bit = divmod(piece.bit, 8)
    data = read_bytes(parts, byte)
    if bit:
        data = (int.from_bytes(data, "little") >> bit).to_bytes(len(data), "little")
    try:
        unpacked = zlib.decompressobj(-15, zdict=_WINDOW).decompress(data, piece.skip + piece.size)
    except zlib.error as err:
        raise ValueError(f"{piece} cannot be unpacked ({err})") from None
    if len(unpacked) != piece.skip + piece.size:
        raise ValueError(f"{piece} has {len(unpacked)} bytes")
    return unpacked[piece.skip :]


def unpack_entries(data: bytes, below: str) -> Iterator[tuple[str, bytes]]:
    """Yield the paths and the bytes of entries that lie one behind the other, directories left out.

    Args:
        data: the entries, each with its header.
        below: the directory of all of them.

    Raises:
        ValueError: they are not packed as expected, or an entry has a path that leads elsewhere.
    """
    place = 0
    while place < len(data):
        try:
            magic, flags, method, packed, size, name, extra = _HEADER.unpack_from(data, place)
        except struct.error:
            raise ValueError("the last entry is not whole") from None
        begin = place + _HEADER.size
        path = data[begin : begin + name].decode("utf-8", "replace")
        begin += name + extra
        place = begin + packed
        if magic != _MAGIC or flags & _UNREADABLE or place > len(data):
            raise ValueError(f"expected an entry of a zip archive, found {path!r}")
        if not _lies_below(path, below):
            raise ValueError(f"{path!r} is not below {below}")
        if not path.endswith("/"):
            yield path, _unpack(path, data[begin:place], method, size)


def _lies_below(path: str, below: str) -> bool:
    odd = any(sign in path for sign in ("\\", "\0", ":", "\ufffd"))
    return path.startswith(f"{below}/") and not odd and ".." not in PurePosixPath(path).parts


def _unpack(path: str, packed: bytes, method: int, size: int) -> bytes:
    if method not in (_STORED, _DEFLATED):
        raise ValueError(f"{path!r} is packed in way {method}, expected 0 or 8")
    try:
        found = packed
        if method == _DEFLATED:
            found = zlib.decompressobj(-15).decompress(packed, size + 1)
    except zlib.error as err:
        raise ValueError(f"{path!r} cannot be unpacked ({err})") from None
    if len(found) != size:
        raise ValueError(f"{path!r} does not have the {size} bytes that its header says")
    return found


def list_defined(symbols: bytes, names: bytes) -> frozenset[str]:
    """Return the names that a shared library defines.

    Args:
        symbols: its ``.dynsym``, of a 64-bit machine that writes the low byte first.
        names: its ``.dynstr``.

    Raises:
        ValueError: a name lies outside of ``names``, or the table is not whole.
    """
    if len(symbols) % _SYMBOL.size:
        raise ValueError(f"a symbol table of {len(symbols)} bytes is not whole")
    found = set()
    for start, section, _, _ in _SYMBOL.iter_unpack(symbols):
        if section != _UNDEFINED and start:
            found.add(names[start : names.index(b"\0", start)].decode("ascii"))
    return frozenset(found)
