"""What is in a shared library: ELF facts and the architectures of a CUDA fat binary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of ``.dynsym``.

    Attributes:
        name: its mangled name.
        version: the version that it needs or has (``GLIBC_2.28``), or None.
        library: the library that the version record names, or None.
        defined: whether this library defines it.
        binding: ``global``, ``weak``, ``unique`` or ``local``.
    """

    name: str
    version: str | None
    library: str | None
    defined: bool
    binding: str


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
    raise NotImplementedError


def read_device_code(path: Path) -> tuple[DeviceCode, ...]:
    """List the images of the CUDA fat binary in a library; empty where it holds none.

    Raises:
        BinaryFormatError: the fat binary's container is damaged.
    """
    raise NotImplementedError
