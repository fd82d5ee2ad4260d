"""Files that were written for the user: which are still as they were written, writing all or none, removing them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kernel_builder.errors import ExportError, StorageError

MANIFEST = "cmake/kernel-builder.json"
SCRATCH = ".kernel-builder-"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What was written into a directory.

    Attributes:
        module: the name of the Python module.
        files: the sha256 of each file as it was written, hex, by POSIX path.
        made: the directories that were made for them; ``.`` for the directory itself.
    """

    module: str
    files: Mapping[str, str] = field(default_factory=dict)
    made: tuple[str, ...] = ()


def find_manifest(target: Path) -> Manifest | None:
    """Read what was written into a directory; None where nothing was.

    Raises:
        ExportError: the record of it cannot be read.
    """
    place = target / MANIFEST
    try:
        data = json.loads(place.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as err:
        raise ExportError(f"{place}: not readable: {err}; move it away, and try again") from err
    if isinstance(data, dict) and data.get("format") not in (None, _FORMAT):
        raise ExportError(
            f"{place}: format {data['format']}, expected {_FORMAT}: a newer kernel-builder wrote "
            "it; use that one"
        )
    try:
        found = Manifest(
            module=str(data["module"]), files=dict(data["files"]), made=tuple(data["made"])
        )
        strays = [path for path in (*found.files, *found.made) if not _is_inside(path)]
    except (KeyError, TypeError, ValueError) as err:
        raise ExportError(f"{place}: no record of written files; move it away") from err
    if strays or not found.module.isidentifier():
        raise ExportError(f"{place}: names files outside of {target}: {strays}; move it away")
    return found


def _is_inside(path: str) -> bool:
    place = PurePosixPath(path)
    return not place.is_absolute() and ".." not in place.parts


def find_changed(target: Path, manifest: Manifest) -> list[str]:
    """Return the files that are there and are not as they were written, sorted."""
    return sorted(
        path
        for path, digest in manifest.files.items()
        if (data := _read(target / path)) is not None and hashlib.sha256(data).hexdigest() != digest
    )


def find_obstacles(target: Path, files: Mapping[str, bytes], old: Manifest | None) -> list[str]:
    """Return the files that writing would replace or remove and that were not written by us.

    Args:
        target: the directory.
        files: what is to be written.
        old: what was written before.
    """
    known = dict(old.files) if old is not None else {}
    obstacles = []
    for path in sorted({*files, *known}):
        place = target / path
        if not (place.is_symlink() or place.exists()):
            continue
        data = _read(place)
        own = data is not None and hashlib.sha256(data).hexdigest() == known.get(path)
        same = data is not None and data == files.get(path)
        if place.is_symlink() or not (own or same):
            obstacles.append(path)
    return obstacles


def _read(place: Path) -> bytes | None:
    """Return the bytes of a plain file, None where there is none."""
    return place.read_bytes() if place.is_file() else None


def write_files(target: Path, files: Mapping[str, bytes], *, module: str) -> None:
    """Write files and the record of them; those of an earlier time that are none of them go.

    All are written, or the directory is as before.

    Raises:
        StorageError: they cannot be written.
    """
    old = find_manifest(target)
    faults = [path for path in files if not _stays_inside(target, path)]
    if faults:
        raise StorageError(
            f"{target}: links lead out of it on the way to {', '.join(faults)}; nothing was written"
        )
    gone = [path for path in (old.files if old else {}) if path not in files]
    made: list[str] = []
    try:
        made = _make_directories(target, [*files, MANIFEST])
        kept = [name for name in (old.made if old else ()) if name not in made]
        record = {
            "format": _FORMAT,
            "module": module,
            "files": {path: hashlib.sha256(files[path]).hexdigest() for path in sorted(files)},
            "made": sorted([*made, *kept]),
        }
        text = json.dumps(record, indent=2) + "\n"
        with tempfile.TemporaryDirectory(dir=target, prefix=SCRATCH) as scratch:
            _replace_all(target, {**files, MANIFEST: text.encode()}, gone, Path(scratch))
        remove_empty(target, parents(gone))
    except OSError as err:
        remove_empty(target, made)
        raise StorageError(
            f"{err.filename or target}: {err.strerror}; nothing was written into {target}"
        ) from err


def _stays_inside(target: Path, path: str) -> bool:
    return (target / path).parent.resolve().is_relative_to(target.resolve())


def _make_directories(target: Path, paths: Iterable[str]) -> list[str]:
    """Make the directories of files, and return those that were not there."""
    made = []
    for name in [".", *reversed(parents(paths))]:
        place = target / name
        if not place.is_dir():
            place.mkdir(parents=name == ".")
            made.append(name)
    return made


def parents(paths: Iterable[str]) -> list[str]:
    """Return the directories of files, those inside before those around them."""
    found = {
        str(parent)
        for path in paths
        for parent in PurePosixPath(path).parents
        if str(parent) != "."
    }
    return sorted(found, key=lambda name: (-name.count("/"), name))


def _replace_all(
    target: Path, files: Mapping[str, bytes], gone: Iterable[str], scratch: Path
) -> None:
    """Put all files in their places, and take those that are gone away; undo it where one fails."""
    for path, data in files.items():
        place = scratch / "new" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    done: list[str] = []
    try:
        for path in [*files, *gone]:
            place, spare = target / path, scratch / "old" / path
            spare.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(place):
                shutil.copy2(place, spare, follow_symlinks=False)
            done.append(path)
            if path in files:
                # In one step: whoever is killed here leaves the old file or the new one.
                (scratch / "new" / path).replace(place)
            else:
                place.unlink(missing_ok=True)
    except OSError:
        for path in reversed(done):
            spare = scratch / "old" / path
            if os.path.lexists(spare):
                spare.replace(target / path)
            else:
                (target / path).unlink(missing_ok=True)
        raise


def remove_files(target: Path, paths: Iterable[str]) -> None:
    """Remove files and whole directories.

    Raises:
        StorageError: one cannot be removed.
    """
    try:
        for path in paths:
            place = target / path
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
    except OSError as err:
        raise StorageError(f"{err.filename}: cannot be removed ({err.strerror})") from err


def remove_empty(target: Path, names: Iterable[str]) -> None:
    """Remove directories that are empty, those inside first."""
    for name in sorted(names, key=lambda name: (name == ".", -name.count("/"), name)):
        place = target / name
        if place.is_dir() and not place.is_symlink() and not any(place.iterdir()):
            place.rmdir()
