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

from kernel_spec.held import try_hold
from kernel_spec.names import RepoId

PREFIX = "uploading-"
# No upload takes as long.
KEPT_SECONDS = 24 * 3600

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
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
    with try_hold(_lock_place(folder, url, repo, scratch)) as held:
        if not held:
            # A file without a lock would say that nobody is at work.
            forget(folder, url, repo, scratch)
        try:
            yield
        finally:
            forget(folder, url, repo, scratch)


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
    if not place.exists():
        return False
    with try_hold(place) as free:
        return free


def forget(folder: Path, url: str, repo: RepoId, branch: str) -> None:
    """Remove the lock of a branch that is left over."""
    with suppress(OSError):
        _lock_place(folder, url, repo, branch).unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove the locks of branches that have never come to be, or that went by their age."""
    for place in folder.glob("*.lock"):
        with suppress(OSError):
            if time.time() - place.stat().st_mtime > KEPT_SECONDS:
                place.unlink()


def _lock_place(folder: Path, url: str, repo: RepoId, scratch: str) -> Path:
    key = hashlib.sha256(f"{url}\0{repo}\0{scratch}".encode()).hexdigest()
    return folder / f"{key[:32]}.lock"
