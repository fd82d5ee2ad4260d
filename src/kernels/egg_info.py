"""Puts the ``kernels.lock`` of a project into the metadata of the distribution that is built from it.

setuptools calls :func:`write_lock` through the entry point group ``egg_info.writers``, in every build
whose environment has this package (``build-system.requires = ["setuptools", "kernels"]``). A project
without a lock is none of its business.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_spec.lock import FILE_NAME
from kernels.lockfile import read_lock


def write_lock(command: Any, basename: str, filename: str) -> None:
    """Copy the lock, after checking that it can be read.

    Args:
        command: the ``egg_info`` command of setuptools.
        basename: the name of the entry point, ``kernels.lock``.
        filename: where in the metadata it belongs.

    Raises:
        LockError: with every fault of the lock.
    """
    lock = _find_lock(Path(filename))
    if lock is None:
        return
    read_lock(lock)
    command.write_file(basename, filename, lock.read_text(encoding="utf-8"))


def _find_lock(target: Path) -> Path | None:
    """Return the project's lock, or the one that an sdist carries in its metadata."""
    carried = [
        path
        for pattern in (f"*.egg-info/{FILE_NAME}", f"src/*.egg-info/{FILE_NAME}")
        for path in sorted(Path().glob(pattern))
        if path.resolve() != target.resolve()
    ]
    return next((path for path in (Path(FILE_NAME), *carried) if path.is_file()), None)
