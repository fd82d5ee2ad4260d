"""Bytes on their way into a repository: large files before their commit, and what commits bring.

::

    <root>/<owner>/<name>/.uploads/<sha256>             a whole large file, its hash checked
    <root>/<owner>/<name>/.uploads/<random>.part        one that is still coming
    <root>/<owner>/<name>/.uploads/<random>.commit/     the body of a commit, and its files

None of it is part of any commit. What a killed client or hub left there is swept after a day; until
then a large file that came whole need not be sent again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from kernel_hub.errors import RequestError, RequestTooLargeError
from kernel_spec.directory import DirectoryHub, repositories, repository_path
from kernel_spec.names import RepoId

FOLDER = ".uploads"
KEPT_SECONDS = 24 * 3600.0
# Sent on to the disk in pieces of this size.
BLOCK = 1024 * 1024
_MODE = 0o444


class Uploads:
    """The bytes on their way into the repositories of a directory hub."""

    def __init__(self, hub: DirectoryHub) -> None:
        self._hub = hub

    def find(self, repo: RepoId, sha256: str) -> Path | None:
        """Return the place of a large file that came whole, or None."""
        place = self._folder(repo) / sha256
        return place if place.is_file() else None

    def begin(self, repo: RepoId, sha256: str, size: int) -> Incoming:
        """Begin to take a large file that should have this hash and size."""
        folder = self._folder(repo)
        folder.mkdir(exist_ok=True)
        return Incoming(folder, sha256, size)

    def make_commit_folder(self, repo: RepoId) -> Path:
        """Make an empty folder for what a commit brings."""
        folder = self._folder(repo)
        folder.mkdir(exist_ok=True)
        place = folder / f"{secrets.token_hex(8)}.commit"
        place.mkdir()
        return place

    def claim(self, repo: RepoId, sha256: str, target: Path) -> bool:
        """Link a large file to a place of one's own, where nobody sweeps it; False: it is not here."""
        try:
            target.hardlink_to(self._folder(repo) / sha256)
        except FileNotFoundError:
            return False
        except OSError:  # a file system without hard links
            shutil.copyfile(self._folder(repo) / sha256, target)
        return True

    def discard(self, repo: RepoId, sha256: str) -> None:
        """Forget a large file, which is part of a commit now."""
        with suppress(OSError):
            (self._folder(repo) / sha256).unlink()

    def sweep(self, repo: RepoId, *, older_than: float = KEPT_SECONDS) -> None:
        """Remove what nobody has written to for so many seconds."""
        try:
            with os.scandir(self._folder(repo)) as entries:
                found = [Path(entry.path) for entry in entries]
        except OSError:
            return
        now = time.time()
        for place in found:
            with suppress(OSError):
                if now - place.stat().st_mtime < older_than:
                    continue
                if place.is_dir():
                    shutil.rmtree(place, ignore_errors=True)
                else:
                    place.unlink()

    def sweep_all(self) -> None:
        """Sweep every repository."""
        for repo in repositories(self._hub):
            self.sweep(repo)

    def _folder(self, repo: RepoId) -> Path:
        return repository_path(self._hub, repo) / FOLDER


class Incoming:
    """A large file that is coming; hashed as it is written, visible only when it is whole."""

    def __init__(self, folder: Path, sha256: str, size: int) -> None:
        self._target = folder / sha256
        self._part = folder / f"{secrets.token_hex(8)}.part"
        self._promised = (sha256, size)
        self._hash = hashlib.sha256()
        self._size = 0
        self._stream: BinaryIO = self._part.open("xb")

    def __enter__(self) -> Incoming:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()
        self._part.unlink(missing_ok=True)

    def write(self, data: bytes | bytearray) -> None:
        """Take further bytes.

        Raises:
            RequestTooLargeError: there are more than was said.
        """
        self._size += len(data)
        if self._size > self._promised[1]:
            raise RequestTooLargeError(
                f"The upload has more than the {self._promised[1]} bytes that were announced."
            )
        self._hash.update(data)
        self._stream.write(data)

    def finish(self) -> None:
        """Put the file in its place.

        Raises:
            RequestError: its size or hash is not what was said; nothing is kept.
        """
        found = (self._hash.hexdigest(), self._size)
        if found != self._promised:
            raise RequestError(
                f"The upload is not what was announced: expected {self._promised[1]} bytes with "
                f"the sha256 {self._promised[0]}, found {found[1]} bytes with {found[0]}. Upload it again."
            )
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._part.chmod(_MODE)
        self._part.replace(self._target)
