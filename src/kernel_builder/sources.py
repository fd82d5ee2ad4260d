"""The files of a project: what is listed, what it hashes to, and whether it needs torch's full interface."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import Build, TorchFramework, TorchNoarch, TvmFfiFramework
from kernel_builder.errors import ProjectError
from kernel_builder.known import read_known

GENERATED = "_ops.py"

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_LEFT_OUT = (".pyc", ".pyo", ".so", ".dylib", ".pyd", ".egg-info")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A file of a project.

    Attributes:
        path: its POSIX path in the project.
        sha256: the hash of its bytes, hex.
        full_abi_header: the first header of torch's full C++ interface that it includes, or None.
    """

    path: str
    sha256: str
    full_abi_header: str | None = None


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
        ProjectError: a file that ``build.toml`` lists is not there; every one is named.
    """
    listed, missing = [], []
    for path in listed_paths(build):
        try:
            listed.append(read_source(project, path))
        except OSError as err:
            missing.append(f"{project / path}: {err.strerror}; build.toml lists it")
    if missing:
        raise ProjectError("\n".join(missing))
    extension = tuple(
        read_source(project, path) for path in sorted(_walk_extension(project, build))
    )
    return SourceSet(listed=tuple(listed), extension=extension)


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
    )


def find_full_abi_header(data: bytes) -> str | None:
    """Return the first header of torch's full C++ interface that a C++ text includes, or None.

    The search is textual: an ``#include`` that the preprocessor would leave out counts too. That
    errs on the side of the full interface, which works, if more slowly.
    """
    headers = read_known().full_abi_headers
    for match in _INCLUDE.finditer(data):
        name = match[1].decode("utf-8", "replace").strip()
        if any(
            name.startswith(header) if header[-1] == "/" else name == header for header in headers
        ):
            return name
    return None


def extension_directory(build: Build) -> str:
    """Return the directory of the Python side of a project."""
    return "tvm-ffi-ext" if isinstance(build.framework, TvmFfiFramework) else "torch-ext"


def _walk_extension(project: Path, build: Build) -> Iterator[str]:
    """Yield the files under ``torch-ext`` that the author wrote."""
    top = project / extension_directory(build)
    generated = f"{extension_directory(build)}/{build.general.module}/{GENERATED}"
    for directory, names, files in os.walk(top):
        names[:] = [
            name
            for name in names
            if name != "__pycache__" and not name.startswith(".") and not name.endswith(_LEFT_OUT)
        ]
        for name in files:
            path = (Path(directory) / name).relative_to(project).as_posix()
            if not name.startswith(".") and not name.endswith(_LEFT_OUT) and path != generated:
                yield path
