"""Judges the shared libraries of a variant before any of them is loaded: would they link, and run here?

What cannot be told never counts against a variant: only a fault that the dynamic loader would
raise, or a device that the code cannot run on, is a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from kernel_spec.binary import ElfFacts, Symbol, newest_glibc, read_device_code, read_elf
from kernel_spec.compat import Reason
from kernel_spec.errors import BinaryFormatError
from kernel_spec.version import MajorMinor
from kernels.linkage.exports import find_defined, is_loadable
from kernels.linkage.host import (
    Host,
    find_library,
    find_loaded,
    holds_text,
    is_findable,
    python_has,
)
from kernels.linkage.names import (
    describe_symbol,
    is_old_layout,
    is_own_variable,
    is_torch_symbol,
)
from kernels.linkage.per_torch import find_for_torch, find_per_torch
from kernels.linkage.verdict import SharedSymbol, Verdict

# The first C library that refuses to make the stack executable for a library.
_STRICT_STACK = MajorMinor(2, 41)
_LIBSTDCXX = ("GLIBCXX_", "CXXABI_")
_TAGGED = re.compile(r"\.cpython-[^.]*\.so$", re.ASCII)
# What torch or the system brings; a kernel may load any other library by itself before its own.
_BROUGHT = re.compile(
    r"lib(torch|c10|cu[a-z]|nv[a-z]|amdhip|hip|roc|sycl|stdc\+\+|gcc_s|gomp|c\.|m\.|pthread)"
)
_SHOWN = 3


def judge_libraries(root: Path, files: Iterable[str], host: Host) -> Verdict:
    """Judge every shared library of a variant.

    Args:
        root: the variant's directory.
        files: the POSIX paths of its files.
        host: this machine.
    """
    paths = [path for path in sorted(files) if path.endswith(".so")]
    if not paths or host.system.os != "linux":
        return Verdict()
    optional = find_per_torch(paths)
    main = [root / path for path in paths if path not in optional]
    reasons: list[Reason] = []
    archs: set[str] = set()
    shared: list[SharedSymbol] = []
    for path in main:
        faults, symbols = _read_library(path, root, host, main)
        reasons += faults
        shared += symbols
        archs.update(_read_archs(path))
    per_torch: tuple[Reason, ...] = ()
    if (part := find_for_torch(paths, host.system.torch)) is not None:
        per_torch, symbols = _read_library(root / part, root, host, main)
        # The kernel does without one that would not link; to map half a file ends the process.
        reasons += [reason for reason in per_torch if reason.kind == "damaged"]
        shared += symbols if not per_torch else ()
    # Several libraries of one variant mostly lack the same thing.
    return Verdict(tuple(dict.fromkeys(reasons)), tuple(sorted(archs)), tuple(shared), per_torch)


def _read_library(
    path: Path, root: Path, host: Host, siblings: Sequence[Path]
) -> tuple[tuple[Reason, ...], tuple[SharedSymbol, ...]]:
    """Return why a library would not link, and what it shares; nothing where that cannot be told."""
    try:
        if not is_loadable(path):
            return (Reason("damaged", f"{path.name} is no whole shared library"),), ()
        elf = read_elf(path)
    except (BinaryFormatError, OSError):
        return (), ()  # the dynamic loader may know better
    shared = _find_shared(path.relative_to(root).as_posix(), elf)
    return tuple(_judge_library(path, elf, host, siblings)), tuple(shared)


def _find_shared(library: str, elf: ElfFacts) -> Iterator[SharedSymbol]:
    for symbol in elf.symbols:
        if symbol.binding == "unique" and symbol.defined and is_own_variable(symbol.name):
            yield SharedSymbol(library, symbol.name, symbol.size)


def _read_archs(path: Path) -> tuple[str, ...]:
    """Return what the CUDA code of a library is for; nothing where its form is not known."""
    try:
        code = read_device_code(path)
    except (BinaryFormatError, OSError):
        return ()
    return tuple(f"{image.arch}{'+PTX' if image.kind == 'ptx' else ''}" for image in code)


def _judge_library(
    path: Path, elf: ElfFacts, host: Host, siblings: Sequence[Path]
) -> Iterator[Reason]:
    system = host.system
    if elf.machine != system.cpu:
        yield Reason("machine", f"{path.name} holds code for {elf.machine}, not for {system.cpu}")
        return
    yield from _judge_python(path, elf, host)
    yield from _judge_glibc(path, elf, host)
    yield from _judge_libstdcxx(path, elf, host)
    yield from _judge_needed(path, elf, host, siblings)
    yield from _judge_torch(path, elf, host, siblings)
    yield from _judge_tvm_ffi(path, elf, host)
    if elf.executable_stack and system.glibc is not None and system.glibc >= _STRICT_STACK:
        yield Reason(
            "executable-stack",
            f"{path.name} asks for an executable stack, which glibc {system.glibc} refuses",
        )


def _judge_python(path: Path, elf: ElfFacts, host: Host) -> Iterator[Reason]:
    tag = _TAGGED.search(path.name)
    if tag is not None and tag[0] not in EXTENSION_SUFFIXES:
        yield Reason(
            "python", f"{path.name} is for another Python than {host.system.python}, by its name"
        )
        return
    names = [s.name for s in elf.symbols if _is_wanted(s) and s.name.startswith(("Py", "_Py"))]
    if lacking := [name for name in names if not python_has(name)]:
        yield Reason(
            "python",
            f"{path.name} needs {_some(lacking)}, which Python {host.system.python} does not have",
        )


def _is_wanted(symbol: Symbol) -> bool:
    return not symbol.defined and symbol.binding == "global"


def _judge_glibc(path: Path, elf: ElfFacts, host: Host) -> Iterator[Reason]:
    needed, found = newest_glibc(elf), host.system.glibc
    if needed is None:
        return
    if found is None:
        yield Reason("glibc", f"{path.name} needs glibc, this system has another C library")
    elif needed > found:
        yield Reason("glibc", f"{path.name} needs glibc {needed}, this system has {found}")


def _judge_libstdcxx(path: Path, elf: ElfFacts, host: Host) -> Iterator[Reason]:
    needs = [version for _, version in elf.version_needs if version.startswith(_LIBSTDCXX)]
    if host.libstdcxx is None or not needs or not _lacking(host.libstdcxx, needs):
        return
    # Another one may be loaded than the first that is found.
    library = find_loaded("libstdc++.so.6") or host.libstdcxx
    if lacking := _lacking(library, needs):
        yield Reason(
            "libstdc++",
            f"{path.name} needs {_some(lacking)} of libstdc++, which {library} lacks",
        )


def _lacking(library: Path, versions: Iterable[str]) -> list[str]:
    try:
        return sorted(version for version in versions if not holds_text(library, version))
    except (OSError, ValueError):
        return []


def _judge_needed(
    path: Path, elf: ElfFacts, host: Host, siblings: Sequence[Path]
) -> Iterator[Reason]:
    beside = [path.parent, *{sibling.parent for sibling in siblings}] if elf.rpath else []
    own = {sibling.name for sibling in siblings}
    torch = host.system.torch
    for name in elf.needed:
        if name in own or not _BROUGHT.match(name) or is_findable(name, host, beside):
            continue
        brought = f"torch {torch.version}" if torch is not None else "no torch"
        yield Reason(
            "library",
            f"{path.name} needs {name}, which neither {brought} brings nor this system has",
        )


def _judge_torch(
    path: Path, elf: ElfFacts, host: Host, siblings: Sequence[Path]
) -> Iterator[Reason]:
    lacking = {s.name for s in elf.symbols if _is_wanted(s) and is_torch_symbol(s.name)}
    torch = host.system.torch
    if torch is None or not host.torch_libraries:
        return
    others = (find_library(name, host.folders) for name in elf.needed)
    for library in dict.fromkeys((*host.torch_libraries, *siblings, *filter(None, others))):
        if not lacking:
            return
        try:
            lacking -= find_defined(library, lacking)
        except (BinaryFormatError, OSError):
            if library in host.torch_libraries:
                return  # what it has is not known
    if not lacking:
        return
    old = [name for name in sorted(lacking) if is_old_layout(name)]
    if old and torch.cxx11_abi:
        yield Reason(
            "abi",
            f"{path.name} was built for the C++98 string layout, and torch {torch.version} has the "
            f"C++11 one: it lacks {_some(map(describe_symbol, old))}",
        )
        return
    yield Reason(
        "torch-symbols",
        f"{path.name} needs {_some(map(describe_symbol, sorted(lacking)))}, "
        f"which torch {torch.version} does not have",
    )


def _judge_tvm_ffi(path: Path, elf: ElfFacts, host: Host) -> Iterator[Reason]:
    """Find functions that came with a later release of the same minor version of TVM FFI."""
    wanted = {s.name for s in elf.symbols if _is_wanted(s) and s.name.startswith("TVMFFI")}
    if not wanted or host.tvm_ffi is None:
        return
    try:
        lacking = sorted(wanted - find_defined(host.tvm_ffi, wanted))
    except (BinaryFormatError, OSError):
        return  # what it has is not known
    if lacking:
        yield Reason(
            "tvm-ffi-symbols",
            f"{path.name} needs {_some(lacking)}, which the installed apache-tvm-ffi "
            f"({host.system.tvm_ffi}) does not have",
        )


def _some(names: Iterable[str]) -> str:
    """Name the first few, and how many more there are."""
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
