"""Which file a program or library is, without reading it: where it lies, its size and its time."""

from __future__ import annotations

from pathlib import Path


def file_identity(path: Path) -> str:
    """Tell a file from its later versions at the cost of one ``stat``.

    Raises:
        FileNotFoundError: there is no such file.
    """
    real = path.resolve(strict=True)
    status = real.stat()
    return f"{real}:{status.st_size}:{status.st_mtime_ns}"
