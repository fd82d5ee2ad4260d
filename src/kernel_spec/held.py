"""A lock file beside what a process works on: whoever finds it free knows that no process does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def try_hold(place: Path) -> Iterator[bool]:
    """Take a lock without waiting, and hold it while the body runs; say whether that was possible.

    It goes with the process, however that ends. Both who works on something and who wants to clear it
    away take it so.

    Args:
        place: the lock file, which is made where it is not there.

    Yields:
        False where another process holds it, and where it cannot be locked: the place cannot be written,
        or its file system has no locks.
    """
    from filelock import FileLock

    lock = FileLock(place)
    # That another one holds it is an OSError, too.
    with suppress(OSError, NotImplementedError):
        lock.acquire(blocking=False)
    try:
        yield lock.is_locked
    finally:
        lock.release()
