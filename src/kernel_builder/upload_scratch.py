"""The branches of another name that uploads over HTTP make for a while: their names, and which are left over.

A name says when it was made, and while its upload is under way a lock in the builder's cache is held
for it. So what a killed upload left is known at once on its own machine, and elsewhere after a day.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernel_spec.names import RepoId

PREFIX = "uploading-"
# No upload takes as long.
KEPT_SECONDS = 24 * 3600

# The folder cannot be written, or its file system has no locks.
_NO_LOCK = (OSError, NotImplementedError)

_NAME = re.compile(rf"{PREFIX}.+-([0-9a-f]{{8}})-[0-9a-f]{{8}}", re.ASCII)


def name_scratch(branch: str) -> str:
    """Name a new branch that becomes ``branch`` when it is whole."""
    return f"{PREFIX}{branch}-{int(time.time()):08x}-{secrets.token_hex(4)}"


def is_scratch(branch: str) -> bool:
    """Say whether a branch is, or was, one that an upload made for a while."""
    return branch.startswith(PREFIX)


@contextmanager
def holding(folder: Path, url: str, repo: RepoId, scratch: str) -> Iterator[None]:
    """Let other uploads of this machine know that a branch is in use, as long as this process lives.

    Where the folder cannot be written they do not know, and take the branch for left over after a day.

    Args:
        folder: where uploads leave their locks.
        url: the hub.
        repo: the repository.
        scratch: the branch.
    """
    from filelock import FileLock

    place = _lock_place(folder, url, repo, scratch)
    lock = FileLock(place)
    with suppress(*_NO_LOCK):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        lock.acquire(timeout=0)
    if not lock.is_locked:
        # A file without a lock would say that nobody is at work.
        forget(folder, url, repo, scratch)
    try:
        yield
    finally:
        with suppress(OSError):
            place.unlink(missing_ok=True)
            lock.release()


def is_left_over(folder: Path, url: str, repo: RepoId, branch: str) -> bool:
    """Say whether a branch is one that an upload made, which does not go on.

    Args:
        folder: where uploads leave their locks.
        url: the hub.
        repo: the repository.
        branch: the name of a branch of it.
    """
    match = _NAME.fullmatch(branch)
    if match is None:
        return False
    if time.time() - int(match[1], 16) > KEPT_SECONDS:
        return True
    place = _lock_place(folder, url, repo, branch)
    return place.exists() and _is_free(place)


def forget(folder: Path, url: str, repo: RepoId, branch: str) -> None:
    """Remove the lock of a branch that is left over."""
    with suppress(OSError):
        _lock_place(folder, url, repo, branch).unlink(missing_ok=True)


def _is_free(place: Path) -> bool:
    from filelock import FileLock, Timeout

    try:
        with FileLock(place, timeout=0):
            return True
    except (Timeout, *_NO_LOCK):
        return False


def _sweep(folder: Path) -> None:
    """Remove the locks of branches that have never come to be, or that went by their age."""
    for place in folder.glob("*.lock"):
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > KEPT_SECONDS:
                place.unlink()


def _lock_place(folder: Path, url: str, repo: RepoId, scratch: str) -> Path:
    key = hashlib.sha256(f"{url}\0{repo}\0{scratch}".encode()).hexdigest()
    return folder / f"{key[:32]}.lock"
