"""Whether what a compiler read was an input: the project's files, the toolchains', the system's own headers."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from kernel_builder.process import run
from kernel_builder.toolchain.cpu import CpuToolchain

_BEGIN = "#include <...> search starts here:"
_END = "End of search list."


# What the directories of a compiler's own headers are called; gcc-cross: for another processor.
_COMPILERS = frozenset({"c++", "gcc", "gcc-cross"})


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemHeaders:
    """The headers that come with the C and C++ libraries and the kernel.

    Attributes:
        own: directories whose every file belongs to the compiler.
        shared: directories that other packages put headers into as well.
    """

    own: tuple[str, ...]
    shared: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Names:
    directories: frozenset[str]
    files: re.Pattern[str]

    def has(self, path: Path) -> bool:
        """Say whether they have a header, by its path below a directory of several packages."""
        first, *rest = path.parts
        return first in self.directories if rest else self.files.match(first) is not None


@cache
def _read_names() -> tuple[_Names, _Names]:
    """Return the names of the system's headers, and those of a CUDA toolkit's."""
    data = tomllib.loads((files("kernel_builder") / "system-headers.toml").read_text("utf-8"))
    system, cuda = (
        _Names(
            directories=frozenset(part["directories"]),
            files=re.compile("|".join(map(fnmatch.translate, part["files"]))),
        )
        for part in (data, data["cuda"])
    )
    return system, cuda


def read_system_headers(toolchain: CpuToolchain, *, variables: Mapping[str, str]) -> SystemHeaders:
    """Ask the compiler where it looks for headers.

    Raises:
        CommandError: it cannot be run.
    """
    command = [*toolchain.command, "-xc++", "-E", "-v", os.devnull]
    output = run(command, variables=variables).output
    listed = output.partition(_BEGIN)[2].partition(_END)[0].splitlines()
    found = [os.path.normpath(line.strip()) for line in listed if line.strip()]
    own = [path for path in found if _COMPILERS & set(Path(path).parts)]
    own += [path for path in found if "clang" in Path(path).parts]
    # What an administrator has put there is no part of the system's C library.
    shared = [path for path in found if path not in own and "local" not in Path(path).parts]
    return SystemHeaders(own=tuple(own), shared=tuple(shared))


def find_foreign(
    paths: Iterable[str],
    *,
    stage: Path,
    roots: Iterable[Path],
    system: SystemHeaders,
    cuda: bool = False,
) -> tuple[str, ...]:
    """Return the files that a compiler read and that are no input of the build.

    Args:
        paths: what it read, as it says.
        stage: the directory that it ran in.
        roots: directories that are inputs as a whole, that of the build among them, and files.
        system: where the headers of the C and C++ libraries are.
        cuda: whether those of the CUDA toolkit that is built with lie beside them.
    """
    own = [os.path.normpath(root) for root in (*map(str, roots), *system.own)]
    # The compiler spells what it finds through a link either way.
    own += [os.path.realpath(root) for root in own]
    names = _read_names() if cuda else _read_names()[:1]
    foreign = []
    for path in paths:
        place = os.path.normpath(stage / path)
        if not _is_under(place, own) and not _is_shared(place, system.shared, names):
            foreign.append(path)
    return tuple(foreign)


def walk_cuda_headers(include: Path, *, shared: bool) -> Iterator[os.DirEntry[str]]:
    """Yield the headers of a user's CUDA toolkit, in the same order each time, links followed.

    Args:
        include: the directory of its headers.
        shared: whether other packages' headers lie beside them; those are left out.
    """
    cuda = _read_names()[1]
    for entry in _list(str(include)):
        # By its place in there a file is known, so a directory is known by any file in it.
        if not shared or cuda.has(Path(entry.name, "*") if entry.is_dir() else Path(entry.name)):
            yield from _walk(entry, frozenset({os.path.realpath(include)}))


def identify_cuda_headers(include: Path, *, shared: bool) -> str:
    """Return a text that changes with the headers of a user's CUDA toolkit; none of them is read.

    Args:
        include, shared: as of :func:`walk_cuda_headers`.
    """
    digest = hashlib.sha256()
    for entry in walk_cuda_headers(include, shared=shared):
        status = entry.stat()
        digest.update(os.fsencode(f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}\n"))
    return digest.hexdigest()


def _walk(entry: os.DirEntry[str], above: frozenset[str]) -> Iterator[os.DirEntry[str]]:
    if entry.is_file():
        yield entry
    elif entry.is_dir() and (place := os.path.realpath(entry.path)) not in above:
        for inner in _list(entry.path):
            yield from _walk(inner, above | {place})


def _list(directory: str) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _is_under(place: str, roots: Iterable[str]) -> bool:
    return any(place == root or place.startswith(f"{root}{os.sep}") for root in roots)


def _is_shared(place: str, shared: Iterable[str], names: Iterable[_Names]) -> bool:
    for root in sorted(shared, key=len, reverse=True):
        if place.startswith(f"{root}{os.sep}"):
            path = Path(place[len(root) + 1 :])
            return any(each.has(path) for each in names)
    return False
