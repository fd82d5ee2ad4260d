"""Stub libraries to link with: this machine's C and C++ libraries, as an older system has them.

A library that is linked against them asks for no symbol version that manylinux_2_28 lacks. Each
stub holds the names and versions of the real library's symbols, up to a cap, and no code. Where
glibc 2.34 moved symbols from libpthread, libdl, librt and libutil into libc, they are moved back.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_builder.policy import VersionCaps, parse_symbol_version
from kernel_builder.process import run

# Part of the key of every stored stub: raise it when the stubs of one library would change.
GENERATOR = 1

_MERGED_IN = ((2, 32), (2, 33), (2, 34))
_TYPES = {"STT_OBJECT": "object", "STT_TLS": "tls_object"}
_SECTIONS = {"object": ".data", "tls_object": '.section .tdata,"awT",@progbits'}


@dataclass(frozen=True, slots=True)
class Export:
    """A symbol that a library defines.

    Attributes:
        name: its name.
        version: its symbol version (``GLIBC_2.17``).
        default: whether a link without a version takes this one.
        kind: ``function``, ``object`` or ``tls_object``.
        size: its size in bytes.
        weak: whether its binding is weak.
    """

    name: str
    version: str
    default: bool
    kind: str
    size: int
    weak: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A versioned shared library: its own name and what it defines."""

    soname: str
    exports: tuple[Export, ...]


def read_library(path: Path) -> Library:
    """Read the versioned symbols that a shared library defines."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        elf: Any = ELFFile(stream)
        dynamic = elf.get_section_by_name(".dynamic")
        soname = next(tag.soname for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_SONAME")
        indices = elf.get_section_by_name(".gnu.version")
        definitions = elf.get_section_by_name(".gnu.version_d")
        names = {
            record["vd_ndx"]: next(iter(auxiliaries)).name
            for record, auxiliaries in definitions.iter_versions()
        }
        exports = []
        for number, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
            index = indices.get_symbol(number)["ndx"]
            if not symbol.name or isinstance(index, str):
                continue
            if symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS"):
                continue
            exports.append(
                Export(
                    name=symbol.name,
                    version=names[index & 0x7FFF],
                    default=not index & 0x8000,
                    kind=_TYPES.get(symbol["st_info"]["type"], "function"),
                    size=symbol["st_size"],
                    weak=symbol["st_info"]["bind"] == "STB_WEAK",
                )
            )
    return Library(soname=soname, exports=tuple(exports))


def cap_library(library: Library, caps: VersionCaps) -> tuple[Library, ...]:
    """Choose, for each symbol, its newest version within the caps.

    Returns:
        The library without what is too new; libc comes with the libraries that it was merged
        from.
    """
    chosen: dict[str, tuple[tuple[int, ...], Export]] = {}
    merged: set[str] = set()
    for export in library.exports:
        version = parse_symbol_version(export.version)
        if version is None:
            continue
        if export.default and version.family == "GLIBC" and version.numbers in _MERGED_IN:
            merged.add(export.name)
        if not caps.allow(version):
            continue
        best = chosen.get(export.name)
        if best is None or version.numbers > best[0]:
            chosen[export.name] = (version.numbers, export)
    homes: dict[str, list[Export]] = defaultdict(list)
    for name in sorted(chosen):
        moved = library.soname == "libc.so.6" and name in merged
        homes[_home_before_merge(name) if moved else library.soname].append(chosen[name][1])
    return tuple(Library(soname=soname, exports=tuple(homes[soname])) for soname in sorted(homes))


def _home_before_merge(name: str) -> str:
    if name.startswith(("dl", "_dl_mcount_wrapper")):
        return "libdl.so.2"
    if re.match(r"(timer_|mq_|aio_|lio_|shm_)", name):
        return "librt.so.1"
    if re.match(r"(openpty|forkpty|log(in|out|wtmp))", name):
        return "libutil.so.1"
    return "libpthread.so.0"


def format_assembly(library: Library) -> str:
    """Write the assembly of a stub library."""
    lines = []
    for export in library.exports:
        size = 1 if export.kind == "function" else max(export.size, 1)
        lines += [
            _SECTIONS.get(export.kind, ".text"),
            f'{".weak" if export.weak else ".globl"} "{export.name}"',
            f'.type "{export.name}",@{export.kind}',
            f'.size "{export.name}",{size}',
            f'"{export.name}": .skip {size}',
        ]
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def format_version_script(library: Library) -> str:
    """Write the linker's version script of a stub library."""
    by_version: dict[str, list[str]] = defaultdict(list)
    for export in library.exports:
        by_version[export.version].append(export.name)
    blocks = []
    for version in sorted(by_version):
        names = "".join(f'  "{name}";\n' for name in sorted(by_version[version]))
        blocks.append(f"{version} {{ global:\n{names}}};\n")
    return "".join(blocks)


def make_system_stubs(
    libraries: Iterable[Path],
    *,
    caps: VersionCaps,
    compiler: Sequence[str],
    variables: Mapping[str, str],
    store: Path,
) -> Path:
    """Return the directory of stubs of these libraries; make it where it is not there yet.

    Args:
        libraries: the shared libraries of this machine.
        caps: the newest versions that the stubs may have.
        compiler: the compiler, which assembles and links.
        variables: the environment of the compiler.
        store: the directory of all stored stubs.

    Raises:
        CommandError: the compiler fails.
    """
    paths = tuple(libraries)
    key = hashlib.sha256(f"{GENERATOR} {caps.name}".encode())
    for path in paths:
        key.update(hashlib.sha256(path.read_bytes()).digest())
    target = store / key.hexdigest()[:32]

    def fill(directory: Path) -> None:
        for path in paths:
            for library in cap_library(read_library(path), caps):
                _assemble(library, directory, compiler, variables)

    return store_directory(target, fill)


def make_torch_stubs(
    names: Iterable[str],
    *,
    cpu: str,
    compiler: Sequence[str],
    variables: Mapping[str, str],
    store: Path,
) -> Path:
    """Return a directory of empty libraries ``lib<name>.so``, which only carry that name."""
    wanted = tuple(sorted(names))
    key = hashlib.sha256(f"{GENERATOR} {cpu} {wanted}".encode()).hexdigest()
    target = store / key[:32]

    def fill(directory: Path) -> None:
        for name in wanted:
            _assemble(Library(soname=f"lib{name}.so", exports=()), directory, compiler, variables)

    return store_directory(target, fill)


def _assemble(
    library: Library, directory: Path, compiler: Sequence[str], variables: Mapping[str, str]
) -> None:
    source = directory / f"{library.soname}.s"
    script = directory / f"{library.soname}.map"
    source.write_text(format_assembly(library))
    script.write_text(format_version_script(library))
    run(
        [
            *compiler,
            "-shared",
            "-nostdlib",
            source,
            f"-Wl,-soname,{library.soname}",
            *([f"-Wl,--version-script={script}"] if library.exports else []),
            "-o",
            directory / library.soname,
        ],
        variables=variables,
    )
    source.unlink()
    script.unlink()


def store_directory(target: Path, fill: Callable[[Path], None]) -> Path:
    """Return a stored directory; where it is not there yet, fill a new one and rename it."""
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        fill(made)
        try:
            made.rename(target)
        except OSError:
            # Another process was faster; what it made is equal.
            if not target.is_dir():
                raise
    return target
