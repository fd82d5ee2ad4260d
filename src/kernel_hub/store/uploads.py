"""Bytes on their way into a repository: large files before their commit, and what commits bring.

::

    <root>/<owner>/<name>/.uploads/<sha256>-<blob id>   a whole large file, its hash checked
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
from kernel_spec.blob import begin_blob
from kernel_spec.directory import DirectoryHub, repositories, repository_path
from kernel_spec.names import RepoId
from kernel_spec.staging import HashedFile
from kernel_spec.whole_file import fsync_folder
from kernel_spec.wire import TreeFile

FOLDER = ".uploads"
KEPT_SECONDS = 24 * 3600.0
_MODE = 0o444


class Uploads:
    """The bytes on their way into the repositories of a directory hub."""

    def __init__(self, hub: DirectoryHub) -> None:
        self._hub = hub

    def find(self, repo: RepoId, sha256: str) -> HashedFile | None:
        """Return a large file that came whole, or None."""
        return _find(self._folder(repo), sha256)

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

    def claim(self, repo: RepoId, sha256: str, folder: Path) -> HashedFile | None:
        """Link a large file into a folder of one's own, where nobody sweeps it; None: it is not here."""
        claimed = _find(folder, sha256)
        found = self.find(repo, sha256)
        if claimed is not None or found is None:
            return claimed
        target = folder / found.place.name
        try:
            target.hardlink_to(found.place)
        except FileNotFoundError:
            return None
        except OSError:  # a file system without hard links
            shutil.copyfile(found.place, target)
            target.chmod(_MODE)
        return HashedFile(target, found.file)

    def discard(self, repo: RepoId, sha256: str) -> None:
        """Forget a large file, which is part of a commit now."""
        found = self.find(repo, sha256)
        if found is not None:
            with suppress(OSError):
                found.place.unlink()

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


def _find(folder: Path, sha256: str) -> HashedFile | None:
    for place in folder.glob(f"{sha256}-*"):
        with suppress(FileNotFoundError):
            oid = place.name.partition("-")[2]
            size = place.stat().st_size
            return HashedFile(place, TreeFile(path="", size=size, oid=oid, sha256=sha256))
    return None


class Incoming:
    """A large file that is coming; hashed as it is written, visible only when it is whole."""

    def __init__(self, folder: Path, sha256: str, size: int) -> None:
        self._folder = folder
        self._part = folder / f"{secrets.token_hex(8)}.part"
        self._promised = (sha256, size)
        self._hash = hashlib.sha256()
        self._blob = begin_blob(size)
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
        self._blob.update(data)
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
        self._part.replace(self._folder / f"{found[0]}-{self._blob.hexdigest()}")
        fsync_folder(self._folder)
