"""The files of a project: what is listed, what it hashes to, and whether it needs torch's full interface."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import Build, TorchFramework, TorchNoarch, TvmFfiFramework
from kernel_builder.errors import ProjectError
from kernel_builder.known import read_known

GENERATED = "_ops.py"

# Texts and comments, so that what looks like one inside the other is not taken for it.
_SPANS = re.compile(
    rb'//[^\\\n]*(?:\\\r?\n?[^\\\n]*)*|/\*.*?(?:\*/|\Z)|R"([^()\s\\]{0,16})\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"'
    rb"|'(?:[^'\\\n]|\\.)+'",
    re.DOTALL,
)
# A condition of the preprocessor; the second group is the 0 of "#if 0".
_CONDITION = re.compile(
    rb"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b"
    rb"(?:[ \t]+(0)(?=[ \t]*(?://|[\r\n]|\Z)))?"
)
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_LEFT_OUT = (".pyc", ".pyo", ".so", ".dylib", ".pyd", ".egg-info")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A file of a project.

    Attributes:
        path: its POSIX path in the project.
        sha256: the hash of its bytes, hex.
        full_abi_header: the first header of torch's full C++ interface that it includes, or None.
        includes: the headers that it includes, as it spells them, in order.
    """

    path: str
    sha256: str
    full_abi_header: str | None = None
    includes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceSet:
    """All files that a project's variants are made of.

    Attributes:
        listed: the files that ``build.toml`` lists, sorted by path, each once.
        extension: the files under ``torch-ext`` (without a generated ``_ops.py`` and bytecode),
            sorted by path.
    """

    listed: tuple[SourceFile, ...]
    extension: tuple[SourceFile, ...]


def listed_paths(build: Build) -> tuple[str, ...]:
    """Return the paths that ``build.toml`` lists, sorted, each once."""
    paths = {path for component in build.components for path in component.src}
    match build.framework:
        case TorchFramework(src=src) | TvmFfiFramework(src=src):
            paths.update(src)
        case TorchNoarch():
            pass
    return tuple(sorted(paths))


def read_sources(project: Path, build: Build) -> SourceSet:
    """Read and hash the files of a project.

    Raises:
        ProjectError: files cannot be read, are no files, or lie outside; every one is named.
    """
    faults: list[str] = []

    def read_all(paths: Iterable[str], why: str) -> tuple[SourceFile, ...]:
        read = []
        for path in paths:
            try:
                read.append(read_source(project, path))
            except OSError as err:
                faults.append(f"{project / path}: {err.strerror}; {why}")
        return tuple(read)

    listed = read_all(listed_paths(build), "build.toml lists it")
    faults += find_strays(project, build.extension)
    if faults:
        raise ProjectError("\n".join(faults))
    extension = read_all(
        sorted(_walk_extension(project, build)), f"it is part of {build.extension}"
    )
    if faults:
        raise ProjectError("\n".join(faults))
    return SourceSet(listed=listed, extension=extension)


def find_strays(project: Path, directory: str) -> list[str]:
    """Say what in a directory of a project can be no part of a kernel.

    Links that leave the project or lead nowhere, links to directories, pipes and devices: another
    checkout would not have the same there, and reading some of them never ends.
    """
    root = project.resolve()
    faults = []
    for top, names, files in os.walk(project / directory):
        names[:] = [name for name in names if _is_source(name)]
        for name in sorted(each for each in (*names, *files) if _is_source(each)):
            place = Path(top) / name
            if place.is_symlink() and not place.exists():
                faults.append(f"{place}: a link to nothing; copy the file into the project")
            elif not place.resolve().is_relative_to(root):
                faults.append(f"{place}: a link out of the project; copy the file into it")
            elif place.is_dir() and place.is_symlink():
                faults.append(f"{place}: a link to a directory; copy the directory")
            elif not place.is_dir() and not place.is_file():
                faults.append(f"{place}: neither a file nor a directory; remove it")
    return faults


def read_source(project: Path, path: str) -> SourceFile:
    """Read and hash one file.

    Raises:
        OSError: it cannot be read.
    """
    data = (project / path).read_bytes()
    return SourceFile(
        path=path,
        sha256=hashlib.sha256(data).hexdigest(),
        full_abi_header=find_full_abi_header(data),
        includes=tuple(find_includes(data)),
    )


def blank_dead(data: bytes) -> bytes:
    """Replace by blanks what no compiler ever sees: block comments, and what stands below ``#if 0``.

    Lines and places stay. Other conditions are not judged.
    """
    data = _SPANS.sub(lambda match: _blank(match[0]) if match[0][:2] == b"/*" else match[0], data)
    lines = data.splitlines(keepends=True)
    # For each condition that is open, whether this branch of it is dead.
    dead: list[bool] = []
    for at, line in enumerate(lines):
        match _CONDITION.match(line):
            case None:
                lines[at] = _blank(line) if any(dead) else line
            case found if found[1].startswith(b"if"):
                dead.append(found[1] == b"if" and found[2] is not None)
            case found if found[1] == b"endif":
                dead = dead[:-1]
            case _:
                dead[-1:] = [False] * bool(dead)
    return b"".join(lines)


def _blank(data: bytes) -> bytes:
    return re.sub(rb"[^\r\n]", b" ", data)


def find_includes(data: bytes) -> Iterator[str]:
    """Yield the headers that a C++ text includes, even where a condition may leave them out."""
    for match in _INCLUDE.finditer(blank_dead(data)):
        yield match[1].decode("utf-8", "replace").strip()


def find_full_abi_header(data: bytes) -> str | None:
    """Return the first header of torch's full C++ interface that a C++ text includes, or None.

    The search is textual: an ``#include`` behind a condition counts too, unless that is ``#if 0``.
    That errs on the side of the full interface, which works, if more slowly.
    """
    headers = read_known().full_abi_headers
    for name in find_includes(data):
        if any(
            name.startswith(header) if header[-1] == "/" else name == header for header in headers
        ):
            return name
    return None


def _walk_extension(project: Path, build: Build) -> Iterator[str]:
    """Yield the files under ``torch-ext`` that the author wrote."""
    generated = f"{build.extension}/{build.general.module}/{GENERATED}"
    for directory, names, files in os.walk(project / build.extension):
        names[:] = [name for name in names if _is_source(name)]
        for name in files:
            path = (Path(directory) / name).relative_to(project).as_posix()
            if _is_source(name) and path != generated:
                yield path


def _is_source(name: str) -> bool:
    """Say whether an author writes files or directories of this name."""
    return name != "__pycache__" and not name.startswith(".") and not name.endswith(_LEFT_OUT)
