"""Unversioned repositories: a project folder with ``build/`` and no refs, read as one commit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_spec.digest import is_bytecode
from kernel_spec.errors import FormatError, IntegrityError
from kernel_spec.listing import Listing, hash_file
from kernel_spec.names import path_fault
from kernel_spec.wire import TreeFile

BRANCH = "main"

# What of a project folder is published: it holds sources too.
_FOLDERS = ("benchmarks", "build")
_FILES = ("README.md", "kernel-status.toml")

# Hashes of files of unversioned repositories, by path, size and time of the last change.
_hashes: dict[tuple[str, int, int], tuple[str, str]] = {}


def compute_listing(folder: Path) -> Listing:
    """List the files that a project folder publishes; bytecode is left out.

    Hashes are kept in the process by path, size and time of the last change.

    Raises:
        FileNotFoundError: the folder has no ``build/``.
        IntegrityError: a symbolic link leads out of the folder, or something is no file.
        FormatError: a path that is not allowed.
    """
    if not (folder / "build").is_dir():
        raise FileNotFoundError(f"no repository at {folder}: it has neither refs nor build")
    root = os.path.realpath(folder)
    files = []
    for path, place in _iter_files(root):
        fault = path_fault(path)
        if fault is not None:
            raise FormatError(f"{place}: unsafe path: {fault}")
        target = os.path.realpath(place)
        if os.path.commonpath((root, target)) != root:
            raise IntegrityError(
                f"{place}: a symbolic link leads out of the repository, to {target}"
            )
        files.append(_describe(path, Path(target)))
    return Listing(None, tuple(sorted(files, key=lambda file: file.path)))


def _describe(path: str, place: Path) -> TreeFile:
    stat = place.stat()
    key = (str(place), stat.st_size, stat.st_mtime_ns)
    hashes = _hashes.get(key)
    size = stat.st_size
    if hashes is None:
        size, *rest = hash_file(place)
        hashes = _hashes[key] = (rest[0], rest[1])
    return TreeFile(
        path=path,
        size=size,
        oid=hashes[0],
        sha256=hashes[1],
        executable=bool(stat.st_mode & 0o100),
    )


def _iter_files(root: str) -> Iterator[tuple[str, str]]:
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.name in _FILES and entry.is_file():
                yield entry.name, entry.path
            elif entry.name in _FOLDERS and entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{entry.name}/")


def _walk(directory: str, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{path}/")
            elif is_bytecode(path):
                continue
            elif entry.is_file():
                yield path, entry.path
            else:
                raise IntegrityError(f"{entry.path}: expected a file or a directory")


def stamp(folder: Path) -> tuple[int, ...]:
    """Return a value that changes when a variant is added, taken away or replaced.

    A file that somebody edits in place does not change it.

    Raises:
        FileNotFoundError: the folder has no ``build/``.
    """
    build = folder / "build"
    stamps = [build.stat().st_mtime_ns]
    with os.scandir(build) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            stamps += (entry.inode(), entry.stat().st_mtime_ns)
    return tuple(stamps)
