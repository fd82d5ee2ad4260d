"""Files that appear whole or not at all: written under another name in the same folder, and renamed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from kernel_spec.document import naming

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}")


def write_whole(
    path: Path,
    data: bytes,
    *,
    lasting: bool = True,
    mode: int = 0o644,
    beside: Path | None = None,
) -> None:
    """Write a file so that it appears whole or not at all.

    Args:
        path: the file, in a folder that is there.
        data: its bytes.
        lasting: whether to wait until they are on the disk, for what cannot be had again.
        mode: its permissions.
        beside: the folder that holds it while it is not whole; None: its own.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    import tempfile

    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=beside or path.parent)
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def is_temporary(name: str) -> bool:
    """Say whether :func:`write_whole` calls a file so while it is not whole."""
    return _TEMPORARY.fullmatch(name) is not None


def fsync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system can."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
