"""Marks the installed variants that this process uses, so that nobody removes them from under it.

A mark is a shared lock of the operating system on the variant's manifest. It is taken through a
handle that can only read, so it writes nothing and works in the cache of another user; it passes on
to forked children, and goes with the last process that holds it, however that ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernels.forking import Renewed

MANIFEST_NAME = "manifest.json"
# Who removes a variant holds it for an instant. Seconds; longer than that nobody waits.
PATIENCE = 1.0
_PAUSE = 0.01


# The handle of each mark of this process, by the variant's directory.
_handles: dict[Path, int] = {}
_marking = Renewed(threading.Lock)


def mark_used(place: Path, moves_to: Path | None = None) -> None:
    """Mark ``variants/<digest>`` as used until this process ends.

    Does nothing where no manifest is there, or where the system has no such locks.

    Args:
        place: the variant.
        moves_to: where it is going to be, so that it is marked before anybody else sees it there.
    """
    path, known_as = place / MANIFEST_NAME, moves_to or place
    with _marking.lock:
        if (handle := _handles.get(known_as)) is not None:
            if _is_open_at(handle, path):
                return
            # What it marked was removed or replaced.
            os.close(_handles.pop(known_as))
        if (handle := _open_marked(path)) is not None:
            _handles[known_as] = handle


def forget() -> None:
    """Take every mark of this process away."""
    with _marking.lock:
        for handle in _handles.values():
            os.close(handle)
        _handles.clear()


@contextmanager
def claim(place: Path) -> Iterator[bool]:
    """Say whether no process uses ``variants/<digest>``; then none begins to while the body runs.

    A variant without a manifest is used by nobody, because nobody can have verified it.

    Raises:
        OSError: its manifest cannot be opened.
    """
    try:
        handle = os.open(place / MANIFEST_NAME, _READ)
    except FileNotFoundError:
        yield True
        return
    try:
        yield _try_lock(handle, exclusive=True) is not False
    finally:
        os.close(handle)


_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def _open_marked(path: Path) -> int | None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            handle = os.open(path, _READ)
        except OSError:
            return None
        locked = _try_lock(handle, exclusive=False)
        if locked and _is_open_at(handle, path):
            return handle
        os.close(handle)
        if locked is None or time.monotonic() > until:
            return None
        # It is being removed: then it is gone at the next look.
        time.sleep(_PAUSE)


def _try_lock(handle: int, *, exclusive: bool) -> bool | None:
    """Lock a file at once; False where another holds it, None where it cannot be locked at all."""
    try:
        import fcntl
    except ImportError:
        # Windows refuses by itself to move what is open.
        return None
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_open_at(handle: int, path: Path) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False
