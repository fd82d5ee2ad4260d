"""Folders beside what is being made, which go at the end; those that killed processes left go with the next."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_spec.held import try_hold
from kernels.store import LEFTOVER_SECONDS

_LOCK = ".in-use"


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Give a new folder on the file system of a result; nobody else takes it for left over meanwhile.

    Args:
        parent: where the result will be.
        prefix: how the names of such folders begin, which no other begins with.

    Raises:
        OSError: it cannot be made.
    """
    for path in parent.iterdir():
        if path.name.startswith(prefix) and path.is_dir() and not path.is_symlink():
            _remove_left_over(path)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
        folder = Path(name)
        with try_hold(folder / _LOCK):
            yield folder


def _remove_left_over(folder: Path) -> None:
    """Remove a folder that no process holds any more."""
    lock = folder / _LOCK
    with suppress(OSError):
        # Before its owner holds it, its age has to do.
        if not lock.exists() and time.time() - folder.stat().st_mtime < LEFTOVER_SECONDS:
            return
    with try_hold(lock) as free:
        if free:
            shutil.rmtree(folder, ignore_errors=True)
