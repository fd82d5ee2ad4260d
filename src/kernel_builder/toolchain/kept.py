"""Directories of a store: made once, by one process at a time, whole or not there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def keep_tree(target: Path, make: Callable[[Path], None]) -> Path:
    """Return a directory of a store, which is made where it is not there.

    Args:
        target: where it lies; what is above it is made too.
        make: called with an empty directory, in which it makes ``tree``; whatever else it leaves
            there is removed.

    Raises:
        Exception: what ``make`` raises; then nothing is left.
    """
    if target.is_dir():
        return target
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f"{target.name}.lock")):
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
