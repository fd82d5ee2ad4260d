"""What the dynamic loader of this machine finds: torch's libraries, others by name, and their versions."""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kernel_spec.system import System
from kernels._version import __version__

_LD_CACHE = Path("/etc/ld.so.cache")
_SYSTEM_FOLDERS = (
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/{cpu}-linux-gnu",
    "/usr/lib/{cpu}-linux-gnu",
    "/usr/local/cuda/lib64",
)
_TORCH_LIBRARIES = ("libtorch*.so*", "libc10*.so*")


class Host(NamedTuple):
    """This machine, as far as linking goes.

    Attributes:
        system: Python, torch, C library and devices.
        torch_libraries: the libraries whose names torch gives to what is loaded after it.
        folders: where libraries are looked for, in order.
        libstdcxx: the C++ library that is or would be loaded, or None where it was not found.
        tvm_ffi: the library of the installed TVM FFI, or None.
    """

    system: System
    torch_libraries: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    libstdcxx: Path | None = None
    tvm_ffi: Path | None = None


def read_host(system: System) -> Host:
    """Find what this process would link against; loads nothing."""
    torch = _torch_folder()
    folders = [*_torch_folders(torch), Path(sys.prefix) / "lib", Path(sys.base_prefix) / "lib"]
    folders += [Path(folder.format(cpu=system.cpu)) for folder in _SYSTEM_FOLDERS]
    here = tuple(folder for folder in folders if folder.is_dir())
    libraries = () if torch is None else tuple(_torch_libraries(torch))
    return Host(
        system=system,
        torch_libraries=libraries,
        folders=here,
        libstdcxx=_mapped("libstdc++.so.6") or find_library("libstdc++.so.6", here),
        tvm_ffi=_find_tvm_ffi(system),
    )


def _find_tvm_ffi(system: System) -> Path | None:
    spec = None if system.tvm_ffi is None else find_spec("tvm_ffi")
    if spec is None or spec.origin is None:
        return None
    library = Path(spec.origin).parent / "lib" / "libtvm_ffi.so"
    return library if library.is_file() else None


def _torch_folder() -> Path | None:
    spec = find_spec("torch") if "torch" not in sys.modules else sys.modules["torch"].__spec__
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "lib"
    return folder if folder.is_dir() else None


def _torch_folders(torch: Path | None) -> list[Path]:
    """List torch's own folder, and those of the wheels that it loads its CUDA libraries from."""
    if torch is None:
        return []
    return [torch, *sorted((torch.parents[1] / "nvidia").glob("*/lib"))]


def _torch_libraries(folder: Path) -> Iterable[Path]:
    for pattern in _TORCH_LIBRARIES:
        yield from sorted(folder.glob(pattern))


def find_library(name: str, folders: Iterable[Path]) -> Path | None:
    """Return where a library of that soname is: in one of the folders, or where the system keeps it."""
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    return _mapped(name)


def is_findable(name: str, host: Host, beside: Iterable[Path]) -> bool:
    """Say whether the dynamic loader would find a library; where it cannot be told, it is asked."""
    if find_library(name, (*beside, *host.folders)) is not None or name in _cached_names():
        return True
    if find_loaded(name) is not None:
        return True
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def find_loaded(name: str) -> Path | None:
    """Return where a library is once torch is loaded, as it is before any kernel is; None: it is not.

    Only run paths and ``LD_LIBRARY_PATH`` know some places, so this is asked before a variant is
    passed over for a library.
    """
    if (path := _mapped(name)) is not None or _torch_folder() is None:
        return path
    import torch

    del torch
    return _mapped(name)


def holds_text(path: Path, text: str) -> bool:
    """Say whether a library's tables hold a whole name, such as that of a version that it defines."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"\0" + text.encode() + b"\0") >= 0


def python_has(name: str) -> bool:
    """Say whether this interpreter exports a function of its C interface."""
    import ctypes

    return hasattr(ctypes.pythonapi, name)


def fingerprint(host: Host) -> str:
    """Name what verdicts depend on, but for the devices: 16 hex digits."""
    facts: list[object] = [__version__, host.system.torch, host.system.glibc, host.system.cpu]
    facts += [host.system.python, host.system.free_threaded, host.libstdcxx, sys.prefix]
    others = filter(None, [host.libstdcxx, host.tvm_ffi])
    for path in (*host.torch_libraries, *others, _LD_CACHE):
        try:
            status = path.stat()
        except OSError:
            continue
        facts.append((str(path), status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@cache
def _cached_names() -> frozenset[str]:
    """Return the names in the system's cache of libraries; empty where it keeps none."""
    try:
        data = _LD_CACHE.read_bytes()
    except OSError:
        return frozenset()
    return frozenset(
        text.decode("ascii", "replace") for text in data.split(b"\0") if text.startswith(b"lib")
    )


def _mapped(name: str) -> Path | None:
    """Return where this process has loaded a library from, or None."""
    if os.name == "nt":
        return None
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    paths = (line.rpartition(" ")[2] for line in lines)
    return next((Path(path) for path in paths if path.endswith(f"/{name}")), None)
