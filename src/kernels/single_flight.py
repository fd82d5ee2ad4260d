"""Lets one process of a host ask a hub what others are about to ask as well; they read its answer.

A thousand ranks that start at once would otherwise each ask for the same refs, listing and metadata.
The one that holds an operating system's lock asks, and keeps the answer in the cache; the others look
there until it appears. A lock goes with the process that holds it, and nobody waits for a slow one
longer than ``PATIENCE``: then it asks by itself, as it does where the cache cannot be written.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TypeVar

from kernels.store import Store

T = TypeVar("T")

# Seconds: how long a process waits for another one's answer; between two looks, at first and at most.
PATIENCE = 20.0
PAUSES = (0.01, 0.1)


def ask_once(
    store: Store, subject: tuple[str, ...], find: Callable[[], T | None], ask: Callable[[], T]
) -> T:
    """Return the answer to a question that one process of this host asks for all.

    Args:
        store: the cache that the processes share.
        subject: what is asked, and of whom.
        find: looks for an answer that another process has kept; None where there is none yet.
        ask: asks, and keeps the answer.

    Raises:
        Whatever ``ask`` raises.
    """
    from filelock import FileLock, Timeout

    name = hashlib.sha256("\0".join(subject).encode()).hexdigest()[:32]
    path = store.folder("locks") / f"ask-{name}.lock"
    until = time.monotonic() + PATIENCE
    pause, longest = PAUSES
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path, timeout=0)
            lock.acquire()
        except Timeout:
            if (known := find()) is not None:
                return known
            if time.monotonic() > until:
                return ask()
            # Who looks takes time from who asks, where they share a processor.
            time.sleep(pause)
            pause = min(pause * 1.5, longest)
        except (OSError, NotImplementedError):
            return ask()
        else:
            break
    try:
        known = find()
        return ask() if known is None else known
    finally:
        lock.release()
