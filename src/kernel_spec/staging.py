"""Writing into a directory hub: one publisher at a time, files whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernel_spec.document import read_plain
from kernel_spec.errors import FormatError, IntegrityError
from kernel_spec.listing import COMMIT_ID, Listing, hash_file
from kernel_spec.whole_file import fsync_folder, write_whole
from kernel_spec.wire import TreeFile

_FOLDER = ".staging"
_LOCK = ".lock"
_BEGUN = "begun-"

# Files of a commit are shared between snapshots, so nobody may write to them.
_FILE_MODE = 0o444
_EXECUTABLE_MODE = 0o555
_FOLDER_MODE = 0o755

_SEALED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A file that nobody writes to any more, whose hashes were taken when it was written.

    Attributes:
        place: where it is; its mode is that of files of a commit.
        file: its size and hashes, and whether it is executable.
    """

    place: Path
    file: TreeFile


@contextmanager
def staging_folder(repository: Path) -> Iterator[Path]:
    """Hold the repository's lock and give an empty folder on its file system.

    The operating system frees the lock of a publisher that was killed. What it left in the folder, and
    the commit that it was about to make, go when the next one begins.
    """
    with hold(repository):
        folder = repository / _FOLDER
        _clear(repository, folder)
        folder.mkdir()
        try:
            yield folder
        finally:
            _clear(repository, folder)


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which the operating system frees where its holder is killed."""
    with _open_lock(folder / _LOCK) as lock:
        _acquire(lock.fileno())
        yield


def _open_lock(place: Path) -> BinaryIO:
    try:
        return place.open("ab")
    except PermissionError:
        # Another user made it, and to hold it needs no right to write.
        return place.open("rb")


def _acquire(descriptor: int) -> None:
    """Wait for the lock; closing the file gives it back."""
    if sys.platform == "win32":
        import msvcrt
        import time

        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                break
            except OSError:
                time.sleep(0.1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def begin_commit(staging: Path, commit: str) -> None:
    """Write down which commit is about to be made, so that it can be taken back if no ref comes to name it.

    Not for a commit of which anything is there already: it may be one that had a ref once.
    """
    # A name alone, which is on the disk no later than that of the commit's own folder.
    (staging / f"{_BEGUN}{commit}").touch()


def _clear(repository: Path, folder: Path) -> None:
    """Remove the staging folder, and what was begun and not finished."""
    if not folder.exists():
        return
    for commit in _find_unfinished(repository, folder):
        (repository / "trees" / f"{commit}.json").unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            (repository / "snapshots" / commit).rename(folder / f"unfinished-{commit}")
    shutil.rmtree(folder)


def _find_unfinished(repository: Path, folder: Path) -> list[str]:
    """List the commits that were begun and that no ref names: nobody was told of one."""
    begun = [path.name.removeprefix(_BEGUN) for path in folder.glob(f"{_BEGUN}*")]
    if not begun:
        return []
    refs = (path for path in (repository / "refs").glob("*/*") if path.is_file())
    named = {read_plain(path).decode("ascii", "replace").strip() for path in refs}
    return [commit for commit in begun if commit not in named and COMMIT_ID.fullmatch(commit)]


def stage_files(
    files: Mapping[str, Path | TreeFile | HashedFile],
    target: Path,
    previous: Listing | None,
    previous_folder: Path,
) -> tuple[TreeFile, ...]:
    """Put files below a new folder, on the disk, and describe them, sorted by path.

    Args:
        files: for each safe path, the file to take the bytes from, one that is hashed and is linked,
            or the entry of the previous listing that stays.
        target: the folder to make.
        previous: the listing whose equal files are hard-linked.
        previous_folder: where the files of that listing are.

    Raises:
        FormatError: a source is not a file.
        IntegrityError: a file that stays is damaged.
    """
    earlier = {} if previous is None else {file.path: file for file in previous.files}
    target.mkdir()
    staged = []
    copied = []
    for path, source in sorted(files.items()):
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        before = earlier.get(path)
        if isinstance(source, TreeFile):
            _keep(place, source, previous_folder / path)
            staged.append(source)
        elif isinstance(source, HashedFile):
            file = source.file._replace(path=path)
            _keep(place, file, source.place)
            staged.append(file)
        elif before is not None and _link(source, place, before, previous_folder / path):
            staged.append(before)
        else:
            file = _copy(path, source, place)
            staged.append(file)
            copied.append((place, file.executable))
    _seal_files(copied)
    _settle_folders(target)
    return tuple(staged)


def _is_executable(source: Path) -> bool:
    status = source.stat()
    if not stat.S_ISREG(status.st_mode):
        raise FormatError(f"{source}: expected a file to publish")
    return bool(status.st_mode & stat.S_IXUSR)


def _keep(place: Path, file: TreeFile, earlier: Path) -> None:
    """Link a file of known hashes; its bytes are proved whenever they are read, so not again here."""
    try:
        status = earlier.lstat()
        fine = stat.S_ISREG(status.st_mode) and status.st_size == file.size
    except (FileNotFoundError, NotADirectoryError):
        fine = False
    if not fine:
        raise IntegrityError(f"{earlier}: not as its commit says; publish that file again")
    if not _try_link(earlier, place):
        if _copy(file.path, earlier, place) != file:
            raise IntegrityError(f"{earlier}: its bytes were changed; publish that file again")
        _seal(place, file.executable)


def _link(source: Path, place: Path, before: TreeFile, earlier: Path) -> bool:
    """Link an earlier file where the source has its bytes, and it still has them itself."""
    promised = (before.size, before.oid, before.sha256)
    if (
        _is_executable(source) is not before.executable
        or source.stat().st_size != before.size
        or hash_file(source) != promised
        or not is_intact(earlier, before)
    ):
        return False
    return _try_link(earlier, place)


def _try_link(earlier: Path, place: Path) -> bool:
    try:
        os.link(earlier, place)
    except OSError:
        return False  # no hard links here, or too many of this file: copy it
    return True


def _copy(path: str, source: Path, place: Path) -> TreeFile:
    executable = _is_executable(source)
    size, oid, sha256 = hash_file(source, copy_to=place)
    return TreeFile(path=path, size=size, oid=oid, sha256=sha256, executable=executable)


def _seal_files(files: Iterable[tuple[Path, bool]]) -> None:
    """Seal copies, many at once: a journal takes a thousand as fast as a few."""
    with ThreadPoolExecutor(_SEALED_AT_ONCE) as pool:
        for _ in pool.map(lambda each: _seal(*each), files):
            pass


def _seal(place: Path, executable: bool) -> None:
    """Put a copy on the disk, and let nobody write to it any more."""
    descriptor = os.open(place, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    place.chmod(_EXECUTABLE_MODE if executable else _FILE_MODE)


def is_intact(place: Path, file: TreeFile) -> bool:
    """Say whether a file on disk is the one that a listing names, by its bytes."""
    try:
        status = place.lstat()
        return (
            stat.S_ISREG(status.st_mode)
            and bool(status.st_mode & stat.S_IXUSR) is file.executable
            and status.st_size == file.size
            and hash_file(place) == (file.size, file.oid, file.sha256)
        )
    except OSError:
        return False


def _settle_folders(root: Path) -> None:
    for directory, _, _ in os.walk(root, topdown=False):
        Path(directory).chmod(_FOLDER_MODE)
        fsync_folder(Path(directory))


def write_file(staging: Path, target: Path, data: bytes) -> None:
    """Write a small file whole, and put its name on the disk."""
    target.parent.mkdir(exist_ok=True)
    write_whole(target, data, beside=staging)
    fsync_folder(target.parent)


def move_folder(staging: Path, source: Path, target: Path) -> None:
    """Move a complete folder to its place; what stood there goes to the staging folder."""
    target.parent.mkdir(exist_ok=True)
    if target.exists():
        target.rename(staging / "replaced")
    source.rename(target)
    fsync_folder(target.parent)


def write_ref(staging: Path, target: Path, commit: str) -> None:
    """Write a ref, and let its folder's time of change grow even within one tick of the clock."""
    before = target.parent.stat().st_mtime_ns if target.parent.exists() else 0
    write_file(staging, target, f"{commit}\n".encode("ascii"))
    _age(target.parent, before)


def delete_ref(target: Path) -> None:
    """Take a ref away, and let its folder's time of change grow.

    Raises:
        FileNotFoundError: no such ref.
    """
    before = target.parent.stat().st_mtime_ns
    target.unlink()
    fsync_folder(target.parent)
    _age(target.parent, before)


def _age(folder: Path, before: int) -> None:
    if folder.stat().st_mtime_ns <= before:
        os.utime(folder, ns=(before + 1, before + 1))
