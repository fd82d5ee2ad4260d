"""The rule of the oldest macOS that a library runs on, read from its load commands.

The format: Apple's <mach-o/loader.h> and <mach-o/fat.h>.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.check.finding import Finding
from kernel_spec.errors import BinaryFormatError

_THIN = {b"\xcf\xfa\xed\xfe": "<", b"\xfe\xed\xfa\xcf": ">"}
_FAT = {b"\xca\xfe\xba\xbe": ">IIIII", b"\xca\xfe\xba\xbf": ">IIQQII"}
_HEADER = 32
_BUILD_VERSION, _MINIMUM_MACOS, _MACOS = 0x32, 0x24, 1
_MACHINES = {0x01000007: "x86_64", 0x0100000C: "arm64"}


@dataclass(frozen=True, kw_only=True, slots=True)
class MacImage:
    """One library of a file, which may hold one for each processor.

    Attributes:
        machine: ``x86_64``, ``arm64``, or the number of the processor.
        minimum: the oldest macOS that it says it runs on, major and minor; None: it says none.
    """

    machine: str
    minimum: tuple[int, int] | None


def is_mac_library(data: bytes) -> bool:
    """Say whether bytes are a library for macOS."""
    return data[:4] in _THIN or data[:4] in _FAT


def read_mac_images(data: bytes, *, file: str) -> tuple[MacImage, ...]:
    """Read what the libraries of a file say of macOS.

    Raises:
        BinaryFormatError: it is damaged.
    """
    try:
        return tuple(_read_image(data[begin:end]) for begin, end in _find_images(data))
    except (struct.error, ValueError) as err:
        raise BinaryFormatError(f"{file}: a damaged library for macOS ({err})") from err


def check_macos(file: str, place: Path, oldest: tuple[int, int]) -> Iterator[Finding]:
    """Find the libraries of a file that a macOS is too old for, or that do not say.

    Args:
        file: its path in the variant.
        place: where it lies.
        oldest: the macOS that they must run on.
    """
    text = ".".join(map(str, oldest))
    for image in read_mac_images(place.read_bytes(), file=file):
        if image.minimum is None:
            yield Finding(
                file=file,
                rule="macos-version",
                symbol=image.machine,
                message=f"it does not say which macOS it runs on; expected {text} or older",
                fix=f"link it with -mmacosx-version-min={text}",
            )
        elif image.minimum > oldest:
            found = ".".join(map(str, image.minimum))
            yield Finding(
                file=file,
                rule="macos-version",
                symbol=image.machine,
                message=f"it runs on macOS {found} and later; expected {text} or older",
                fix=f"compile and link it with -mmacosx-version-min={text}, or allow --macos {found}",
            )


def _find_images(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each library of a file begins and ends."""
    entry = _FAT.get(data[:4])
    if entry is None:
        yield 0, len(data)
        return
    (count,) = struct.unpack_from(">I", data, 4)
    for number in range(count):
        _, _, begin, size, *_ = struct.unpack_from(entry, data, 8 + number * struct.calcsize(entry))
        if begin + size > len(data):
            raise ValueError("a part lies outside of the file")
        yield begin, begin + size


def _read_image(data: bytes) -> MacImage:
    order = _THIN.get(data[:4])
    if order is None:
        raise ValueError("a part is no library")
    _, cpu, _, _, count, size = struct.unpack_from(f"{order}6I", data)
    place, minimum = _HEADER, None
    for _ in range(count):
        if place + 8 > _HEADER + size:
            raise ValueError("more load commands than there is room for")
        command, length = struct.unpack_from(f"{order}2I", data, place)
        if length < 8:
            raise ValueError("a load command without end")
        if command == _BUILD_VERSION:
            platform, version = struct.unpack_from(f"{order}2I", data, place + 8)
            minimum = _split(version) if platform == _MACOS else minimum
        elif command == _MINIMUM_MACOS:
            minimum = _split(struct.unpack_from(f"{order}I", data, place + 8)[0])
        place += length
    return MacImage(machine=_MACHINES.get(cpu, str(cpu)), minimum=minimum)


def _split(version: int) -> tuple[int, int]:
    """Read a version as Apple packs it: 16 bits major, 8 minor, 8 patch."""
    return version >> 16, version >> 8 & 0xFF
