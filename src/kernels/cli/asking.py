"""Which kernel the words of a command mean: a path, or a repository at a version or a revision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.revision import KernelRef
    from kernels.settings import Settings
    from kernels.source import Located


def find_path(kernel: str, version: str | None, revision: str | None) -> Path | None:
    """Return the folder that KERNEL names; None for a repository, which alone has versions."""
    path = Path(kernel)
    return path.absolute() if path.is_dir() and version is None and revision is None else None


def ref_of(repo_id: str, version: str | None, revision: str | None) -> KernelRef:
    """Return what is asked for: a ``--version`` is a number, or a range of tags.

    Raises:
        UsageError: no such id or version.
    """
    from kernels.asked import parse_ref

    is_number = version is not None and version.isascii() and version.isdigit()
    return parse_ref(repo_id, revision, int(version or 0) if is_number else version)


def locate(
    repo_id: str,
    version: str | None,
    revision: str | None,
    settings: Settings,
    *,
    refresh: bool = False,
) -> Located:
    """Find a repository at a version or a revision.

    Raises:
        UsageError, and as ``source.locate``.
    """
    from kernels import source

    return source.locate(ref_of(repo_id, version, revision), settings, refresh=refresh)
