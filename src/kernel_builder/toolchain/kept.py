"""Directories of a store: made once, by one process at a time, whole or not there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


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
    with _lock(target.with_name(f"{target.name}.lock"), on_wait):
        if target.is_dir():
            return target
        # What a killed process has left; nobody else works on this directory now.
        for old in target.parent.glob(f".{target.name}-*"):
            shutil.rmtree(old, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            make(scratch)
            (scratch / "tree").rename(target)
        except OSError as err:
            if err.filename is None and err.errno is not None:
                err.filename = str(target)  # a full disk says no place
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


@contextmanager
def _lock(place: Path, on_wait: Callable[[], None] | None) -> Iterator[None]:
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
