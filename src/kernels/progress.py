"""Tells how far a download is: a bar on a terminal, a line now and then elsewhere, nothing of a quick one.

``HF_HUB_DISABLE_PROGRESS_BARS`` silences both, as its users know it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernels.log import logger

# Seconds before a bar appears; before the first line, and between lines.
BAR_AFTER = 0.5
LINE_AFTER, LINE_EVERY = 10.0, 30.0

# Told the number of bytes that have arrived; a negative one of bytes that are to come again.
Advance = Callable[[int], None]


@contextmanager
def show_progress(what: str, total: int) -> Iterator[Advance]:
    """Show how far a download is, while the body runs; it may advance from any thread.

    Args:
        what: what is downloaded.
        total: its size in bytes.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        yield from _bar(what, total)
    else:
        yield _lines(what, total)


def _is_silenced() -> bool:
    # Asked only of a download that takes long: to import this takes longer than a quick one.
    from huggingface_hub.utils import (  # type: ignore[attr-defined]  # documented there
        are_progress_bars_disabled,
    )

    return bool(are_progress_bars_disabled())


def _bar(what: str, total: int) -> Iterator[Advance]:
    lock = threading.Lock()
    begin = time.monotonic()
    due, done = begin + BAR_AFTER, 0
    bar: Any = None

    def advance(size: int) -> None:
        nonlocal bar, due, done
        with lock:
            done += size
            if bar is not None:
                bar.update(size)
            elif time.monotonic() >= due:
                if _is_silenced():
                    due = float("inf")
                    return
                from tqdm import tqdm

                bar = tqdm(desc=what, total=total, unit="B", unit_scale=True)
                bar.update(done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.close()


def _lines(what: str, total: int) -> Advance:
    lock = threading.Lock()
    begin = time.monotonic()
    due, done = begin + LINE_AFTER, 0

    def advance(size: int) -> None:
        nonlocal due, done
        with lock:
            done += size
            now = time.monotonic()
            if now < due or done >= total:
                return
            due = now + LINE_EVERY
            if _is_silenced():
                due = float("inf")
                return
        # A warning, so that the log of a job has it: somebody is waiting.
        logger().warning(
            "%s: %.0f of %.0f MB downloaded after %.0f s",
            what,
            done / 1e6,
            total / 1e6,
            now - begin,
        )

    return advance
