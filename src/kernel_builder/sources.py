"""The files of a project: what is listed, what it hashes to, and what it includes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import Build


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


def read_sources(project: Path, build: Build) -> SourceSet:
    """Read and hash the files of a project.

    Raises:
        ProjectError: a file that ``build.toml`` lists is not there; every one is named.
    """
    raise NotImplementedError
