"""Removing an export: the files that were written, and what pip and CMake made with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import TORCH_EXTENSION, TVM_FFI_EXTENSION
from kernel_builder.errors import ExportError
from kernel_builder.export.files import HEADER
from kernel_builder.export.generated import (
    MANIFEST,
    SCRATCH,
    Manifest,
    find_changed,
    find_manifest,
    parents,
    remove_empty,
    remove_files,
)
from kernel_builder.package import OPS_FILE, format_ops

WORK = "_cmake_build"
_TAG = "Signature: 8a477f597d28d172789f06886806bc55"
_HOME = re.compile(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", re.MULTILINE)
# What CMake, its generators and kernel.cmake make in a directory, besides the package.
_CMAKE_MADE = (
    ".cmake",
    ".ninja_deps",
    ".ninja_lock",
    ".ninja_log",
    "CMakeCache.txt",
    "CMakeFiles",
    "Makefile",
    "build.ninja",
    "cmake_install.cmake",
    "compile_commands.json",
    "exports.map",
    "install_manifest.txt",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What cleaning removes.

    Attributes:
        target: the directory.
        paths: files and directories of build results, sorted.
        changed: written files that were changed since.
        folders: directories that go if they are empty then.
    """

    target: Path
    paths: tuple[str, ...]
    changed: tuple[str, ...]
    folders: tuple[str, ...]


def plan_removal(target: Path) -> Removal:
    """Find what was written into a directory and what was made with it; nothing is removed.

    Raises:
        ExportError: the record of what was written cannot be read.
    """
    manifest = find_manifest(target)
    if manifest is None:
        return Removal(target=target, paths=(), changed=(), folders=())
    changed = find_changed(target, manifest)
    paths = {path for path in manifest.files if (target / path).is_file()} - set(changed)
    # Also those that an export made which was killed before it recorded them.
    folders = {*manifest.made, *parents([*manifest.files, MANIFEST])}
    if _is_work(target / WORK):
        paths.add(WORK)
    # What an export that was killed left behind.
    paths |= {place.name for place in target.glob(f"{SCRATCH}*") if place.is_dir()}
    paths |= _made_in_place(target, manifest)
    for place in _cmake_directories(target):
        name = place.name
        paths |= {f"{name}/{each}" for each in _CMAKE_MADE if (place / each).exists()}
        package = f"package/{manifest.module}"
        if (place / package).is_dir():
            paths.add(f"{name}/{package}")
        folders |= {name, f"{name}/package"}
    return Removal(
        target=target,
        paths=tuple(sorted([*paths, MANIFEST])),
        changed=tuple(changed),
        folders=tuple(sorted(folders)),
    )


def remove_export(removal: Removal, *, force: bool = False) -> tuple[str, ...]:
    """Remove what was planned, and return the paths.

    Args:
        removal: what to remove.
        force: also remove written files that were changed since.

    Raises:
        ExportError: files were changed; nothing is removed.
        StorageError: something cannot be removed.
    """
    if removal.changed and not force:
        names = "".join(f"\n  {path}" for path in removal.changed)
        raise ExportError(
            f"{removal.target}: nothing was removed, since these were changed after they were "
            f"written:{names}\nmove them away, or remove them too with --force"
        )
    paths = sorted({*removal.paths, *removal.changed})
    # The record goes last: where this is interrupted, another run finishes it.
    remove_files(removal.target, [path for path in paths if path != MANIFEST])
    if MANIFEST in paths:
        remove_files(removal.target, [MANIFEST])
    remove_empty(removal.target, removal.folders)
    return tuple(paths)


def _is_work(place: Path) -> bool:
    """Say whether setup.py made a directory."""
    tag = place / "CACHEDIR.TAG"
    return not place.is_symlink() and tag.is_file() and tag.read_text().startswith(_TAG)


def _made_in_place(target: Path, manifest: Manifest) -> set[str]:
    """Return what an installation in place put into the module."""
    found: set[str] = set()
    for directory, suffix in (
        (TORCH_EXTENSION, r"\.abi3\.so"),
        (TVM_FFI_EXTENSION, r"\.so"),
    ):
        found |= _made_in_module(target, Path(directory, manifest.module), suffix, manifest)
    return found


def _made_in_module(target: Path, module: Path, suffix: str, manifest: Manifest) -> set[str]:
    top = target / module
    library = re.compile(rf"\.?_{re.escape(manifest.module)}_[a-z]+_\w+{suffix}(\.new)?")
    found = {
        (module / place.name).as_posix()
        for place in (top.iterdir() if top.is_dir() else ())
        if library.fullmatch(place.name) and place.is_file()
    }
    ops = module / OPS_FILE
    if ops.as_posix() not in manifest.files and _is_written_ops(target / ops):
        found.add(ops.as_posix())
    if ops.as_posix() in {*found, *manifest.files}:
        cache = top / "__pycache__"
        found |= {
            (module / "__pycache__" / place.name).as_posix()
            for place in cache.glob(f"{Path(OPS_FILE).stem}.*.pyc")
        }
    return found


def _is_written_ops(place: Path) -> bool:
    """Say whether a file is an ``_ops.py`` that an export brings, whatever its id."""
    if not place.is_file():
        return False
    text = place.read_text(errors="replace")
    found = re.search(r"torch\.ops\.(\w+)|with_name\(\"(\w+)\.so\"\)", text)
    if found is None:
        return False
    if found[2] is not None:
        return text == f"{HEADER}\n{format_ops(found[2], compiled=True, tvm_ffi=True)}"
    return text in {
        f"{HEADER}\n{format_ops(found[1], compiled=compiled, per_torch=per_torch)}"
        for compiled in (True, False)
        for per_torch in (True, False)
    }


def _cmake_directories(target: Path) -> list[Path]:
    """Return the directories in a directory that CMake builds it in."""
    found = []
    for cache in sorted(target.glob("*/CMakeCache.txt")):
        home = _HOME.search(cache.read_text(errors="replace"))
        inside = not cache.parent.is_symlink()
        if inside and home is not None and Path(home[1]).resolve() == target.resolve():
            found.append(cache.parent)
    return found
