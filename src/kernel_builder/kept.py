"""Directories of a store: made once, by one process at a time, whole or not there."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_spec.whole_file import fsync_folder


def keep_tree(
    target: Path, make: Callable[[Path], None], *, on_wait: Callable[[], None] | None = None
) -> Path:
    """Return a directory of a store, which is made where it is not there.

    Args:
        target: where it lies; what is above it is made too.
        make: called with an empty directory, in which it makes ``tree``; whatever else it leaves
            there is removed.
        on_wait: called where another process is making it, before this one waits for it.

    Raises:
        Exception: what ``make`` raises; then nothing is left.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with hold(target.with_name(f"{target.name}.lock"), on_wait):
        if target.is_dir():
            return target
        # What a killed process has left; nobody else works on this directory now.
        for old in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(old, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            make(scratch)
            _settle(scratch / "tree")
            (scratch / "tree").rename(target)
            fsync_folder(target.parent)
        except OSError as err:
            if err.filename is None and err.errno is not None:
                err.filename = str(target)  # a full disk says no place
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


def _settle(tree: Path) -> None:
    """Wait until a directory and all that is in it are on the disk: whoever finds its name trusts it.

    The thousands of headers of one torch take far longer one by one than together with whatever
    else waits for their file system.
    """
    if _sync_file_system(tree):
        return
    for place in (*tree.rglob("*"), tree):
        if not place.is_symlink():
            with _opened(place) as descriptor:
                os.fsync(descriptor)


def _sync_file_system(place: Path) -> bool:
    """Put the file system of a place on the disk; False where this system has or allows no such call."""
    if (sync_all := find_syncfs()) is None:
        return False
    with _opened(place) as descriptor:
        if sync_all(descriptor) == 0:
            return True
    if (code := ctypes.get_errno()) in (errno.ENOSYS, errno.EPERM):
        return False
    raise OSError(code, os.strerror(code))


@contextmanager
def _opened(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def find_syncfs() -> Callable[[int], int] | None:
    """Return what puts a whole file system on the disk (Linux, syncfs(2)), or None where nothing does."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


@contextmanager
def hold(place: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock; ``on_wait`` is called where another process has it, before this one waits for it."""
    from filelock import FileLock, Timeout

    lock = FileLock(place)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_wait is not None:
            on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
