"""What is in a shared library: ELF facts and the architectures of a CUDA fat binary."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_spec.errors import BinaryFormatError
from kernel_spec.version import MajorMinor, parse_major_minor

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_BINDINGS = {
    "STB_LOCAL": "local",
    "STB_GLOBAL": "global",
    "STB_WEAK": "weak",
    # GNU's unique binding has the first number of those that systems may define.
    "STB_LOOS": "unique",
    "STB_GNU_UNIQUE": "unique",
}
_GLIBC = re.compile(r"GLIBC_(\d+\.\d+)(?:\.\d+)?", re.ASCII)
_EXECUTABLE_SEGMENT = 1
# Bit 15 of a version index hides a symbol; indices 0 and 1 mean no version.
_VERSION_INDEX = 0x7FFF
_LEAST_VERSION_RECORD = 16

# The container of CUDA device code. No manual describes it: these facts were found by comparing
# what nvcc 13.0 writes with what cuobjdump 13.2 says of it.
_FATBIN_SECTION = ".nv_fatbin"
_FATBIN_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct(
    "<HHIQIIHHIIIQ"
)  # kind, _, header size, size, 5 others, arch, 2 others, flags
_KINDS = {1: "ptx", 2: "cubin", 16: "cubin"}
_ARCH_SPECIFIC = 1 << 20  # sm_90a
_FAMILY_SPECIFIC = 1 << 21  # sm_100f
# The machine code of CUDA 12 says it in its own ELF header (ABI version below 8; ptxas 12.8).
_CUBIN_ABI_OFFSET, _CUBIN_FLAGS_OFFSET, _CUBIN_ARCH_SPECIFIC = 8, 48, 0x800


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of ``.dynsym``.

    Attributes:
        name: its mangled name.
        version: the version that it needs or has (``GLIBC_2.28``), or None.
        library: the library that the version record names, or None.
        defined: whether this library defines it.
        binding: ``global``, ``weak``, ``unique`` or ``local``.
        size: bytes of what it names, 0 where that is not said; two that differ in it alone are equal.
    """

    name: str
    version: str | None
    library: str | None
    defined: bool
    binding: str
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ElfFacts:
    """What the dynamic loader sees of a shared library.

    Attributes:
        machine: ``x86_64``, ``aarch64`` or pyelftools's name.
        soname: its own name, or None.
        needed: the libraries that it asks for, in order.
        rpath: the entries of DT_RPATH and DT_RUNPATH.
        symbols: every entry of ``.dynsym`` but the null one.
        version_needs: pairs of library and version of ``.gnu.version_r``.
        executable_stack: whether it asks for an executable stack.
    """

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    symbols: tuple[Symbol, ...]
    version_needs: tuple[tuple[str, str], ...]
    executable_stack: bool


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """One image of a CUDA fat binary.

    Attributes:
        kind: ``cubin`` (machine code) or ``ptx``.
        arch: the capability, such as ``9.0`` or ``9.0a``.
    """

    kind: str
    arch: str


def read_elf(path: Path) -> ElfFacts:
    """Read the dynamic section of a shared library; works on stripped ones.

    Raises:
        BinaryFormatError: not an ELF file, damaged, or without a dynamic symbol table.
        FileNotFoundError: there is no such file.
    """
    with _open_elf(path) as elf:
        sections = list(elf.iter_sections())
        by_type = {section["sh_type"]: section for section in sections}
        dynsym = by_type.get("SHT_DYNSYM")
        if dynsym is None:
            raise BinaryFormatError(
                f"{path}: expected a shared library, found no dynamic symbol table"
            )
        tags = _dynamic_tags(by_type.get("SHT_DYNAMIC"))
        versions, needs = _read_versions(by_type)
        return ElfFacts(
            machine=_MACHINES.get(elf["e_machine"], str(elf["e_machine"])),
            soname=next((text for tag, text in tags if tag == "DT_SONAME"), None),
            needed=tuple(text for tag, text in tags if tag == "DT_NEEDED"),
            rpath=tuple(
                entry
                for tag, text in tags
                if tag in ("DT_RPATH", "DT_RUNPATH")
                for entry in text.split(":")
            ),
            symbols=tuple(_iter_symbols(dynsym, by_type.get("SHT_GNU_versym"), versions)),
            version_needs=needs,
            executable_stack=_has_executable_stack(elf),
        )


def newest_glibc(elf: ElfFacts) -> MajorMinor | None:
    """Return the newest version of glibc that a library needs symbols of; None where it names none."""
    found = (_GLIBC.fullmatch(version) for _, version in elf.version_needs)
    return max((parse_major_minor(match[1]) for match in found if match is not None), default=None)


@contextmanager
def _open_elf(path: Path) -> Iterator[Any]:
    """Open an ELF file whose tables lie inside it, and turn every fault into one kind."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        try:
            elf = ELFFile(stream)
            _check_bounds(path, elf, os.fstat(stream.fileno()).st_size)
            yield elf
        except BinaryFormatError:
            raise
        # The parser lets what its own reading of a damaged file trips over pass through.
        except (
            ELFError,
            ConstructError,
            struct.error,
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            MemoryError,
            OSError,
            TypeError,
            ValueError,
        ) as err:
            raise BinaryFormatError(
                f"{path}: not an ELF file, or a damaged one ({err or type(err).__name__})"
            ) from err


def _check_bounds(path: Path, elf: Any, size: int) -> None:
    header = elf.header
    ends = [
        header["e_phoff"] + header["e_phnum"] * header["e_phentsize"],
        header["e_shoff"] + header["e_shnum"] * header["e_shentsize"],
    ]
    if max(ends) <= size:
        if header["e_shnum"] == 0:
            raise BinaryFormatError(f"{path}: has no section headers, so it cannot be judged")
        ends += [
            section["sh_offset"] + section["sh_size"]
            for section in elf.iter_sections()
            if section["sh_type"] not in ("SHT_NOBITS", "SHT_NULL")
        ]
        # A count that is too high would make the parser walk in circles for hours.
        ends += [
            section["sh_offset"] + section["sh_info"] * _LEAST_VERSION_RECORD
            for section in elf.iter_sections()
            if section["sh_type"] in ("SHT_GNU_verneed", "SHT_GNU_verdef")
        ]
        ends += [segment["p_offset"] + segment["p_filesz"] for segment in elf.iter_segments()]
    if max(ends) > size:
        raise BinaryFormatError(f"{path}: truncated: expected {max(ends)} bytes, found {size}")


def _dynamic_tags(dynamic: Any) -> list[tuple[str, str]]:
    """List the tags of the dynamic section that hold a text."""
    attributes = {
        "DT_NEEDED": "needed",
        "DT_SONAME": "soname",
        "DT_RPATH": "rpath",
        "DT_RUNPATH": "runpath",
    }
    if dynamic is None:
        return []
    return [
        (tag.entry.d_tag, getattr(tag, attributes[tag.entry.d_tag]))
        for tag in dynamic.iter_tags()
        if tag.entry.d_tag in attributes
    ]


def _read_versions(
    by_type: dict[str, Any],
) -> tuple[dict[int, tuple[str, str | None]], tuple[tuple[str, str], ...]]:
    """Return version and library by version index, and the pairs of library and version."""
    versions: dict[int, tuple[str, str | None]] = {}
    needs: list[tuple[str, str]] = []
    verneed, verdef = by_type.get("SHT_GNU_verneed"), by_type.get("SHT_GNU_verdef")
    if verneed is not None:
        most = verneed["sh_size"] // _LEAST_VERSION_RECORD
        for library, entries in verneed.iter_versions():
            for entry in entries:
                # Each record says where the next one is: two that say "here" would go on for hours.
                if len(needs) >= most:
                    raise BinaryFormatError(f"the version table has more records than its {most}")
                versions[entry["vna_other"] & _VERSION_INDEX] = (entry.name, library.name)
                needs.append((library.name, entry.name))
    if verdef is not None:
        for definition, names in verdef.iter_versions():
            versions[definition["vd_ndx"] & _VERSION_INDEX] = (next(iter(names)).name, None)
    return versions, tuple(needs)


def _iter_symbols(
    dynsym: Any, versym: Any, versions: dict[int, tuple[str, str | None]]
) -> Iterator[Symbol]:
    for number, symbol in enumerate(dynsym.iter_symbols()):
        if number == 0:
            continue
        index = 0
        if versym is not None:
            index = _version_index(versym.get_symbol(number)["ndx"])
        version, library = versions.get(index, (None, None))
        if index > 1 and version is None:
            raise BinaryFormatError(
                f"symbol {symbol.name!r} has version index {index}, which no table names"
            )
        binding = symbol["st_info"]["bind"]
        yield Symbol(
            name=symbol.name,
            version=version,
            library=library,
            defined=symbol["st_shndx"] != "SHN_UNDEF",
            binding=_BINDINGS.get(binding, str(binding)),
            size=symbol["st_size"],
        )


def _version_index(raw: int | str) -> int:
    # The parser names the first two indices.
    return 0 if isinstance(raw, str) else raw & _VERSION_INDEX


def _has_executable_stack(elf: Any) -> bool:
    """Without a header that says otherwise, the dynamic loader makes the stack executable."""
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_GNU_STACK":
            return bool(segment["p_flags"] & _EXECUTABLE_SEGMENT)
    return True


def read_device_code(path: Path) -> tuple[DeviceCode, ...]:
    """List the images of the CUDA fat binary in a library; empty where it holds none.

    Raises:
        BinaryFormatError: not an ELF file, or the fat binary's container is damaged.
        FileNotFoundError: there is no such file.
    """
    with _open_elf(path) as elf:
        section = elf.get_section_by_name(_FATBIN_SECTION)
        return () if section is None else parse_fatbin(section.data())


def parse_fatbin(data: bytes) -> tuple[DeviceCode, ...]:
    """List the images in the containers that a section holds one after the other.

    Raises:
        BinaryFormatError: it is damaged.
    """
    images: list[DeviceCode] = []
    offset = 0
    while offset < len(data):
        if data[offset : offset + 4] == b"\0\0\0\0":
            offset += 4  # padding between containers
            continue
        if offset + _CONTAINER.size > len(data):
            raise BinaryFormatError(f"fat binary: truncated at byte {offset}")
        magic, _, header_size, size = _CONTAINER.unpack_from(data, offset)
        end = offset + header_size + size
        if magic != _FATBIN_MAGIC or header_size < _CONTAINER.size or end > len(data):
            raise BinaryFormatError(f"fat binary: no complete container at byte {offset}")
        images += _iter_images(data, offset + header_size, end)
        offset = end
    return tuple(images)


def _iter_images(data: bytes, offset: int, end: int) -> Iterator[DeviceCode]:
    while offset < end:
        if offset + _ENTRY.size > end:
            raise BinaryFormatError(f"fat binary: truncated at byte {offset}")
        kind, _, header_size, size, *_, number, _, _, flags = _ENTRY.unpack_from(data, offset)
        start = offset + header_size
        if header_size < _ENTRY.size or start + size > end:
            raise BinaryFormatError(f"fat binary: no complete image at byte {offset}")
        if kind in _KINDS:
            suffix = ""
            if flags & _ARCH_SPECIFIC or _says_arch_specific(data[start : start + 64]):
                suffix = "a"
            elif flags & _FAMILY_SPECIFIC:
                suffix = "f"
            yield DeviceCode(_KINDS[kind], f"{number // 10}.{number % 10}{suffix}")
        offset = start + size


def _says_arch_specific(image: bytes) -> bool:
    if len(image) < 64 or not image.startswith(b"\x7fELF") or image[_CUBIN_ABI_OFFSET] >= 8:
        return False
    (flags,) = struct.unpack_from("<I", image, _CUBIN_FLAGS_OFFSET)
    return bool(flags & _CUBIN_ARCH_SPECIFIC)
