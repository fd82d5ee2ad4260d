"""A folder as a hub: ``kernel_spec.directory`` behind the Protocol of :mod:`kernels.hub`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kernel_spec import directory
from kernel_spec.directory import DirectoryHub
from kernel_spec.document import open_plain
from kernel_spec.errors import KernelError
from kernel_spec.names import RepoId
from kernel_spec.wire import Organization, Refs, TreeFile
from kernels.errors import (
    HubUnreachableError,
    RepoNotFoundError,
    RevisionNotFoundError,
    SettingsError,
    find_obstacle,
)
from kernels.hub import BUILD_FOLDER, CHUNK_BYTES, Origin


class FolderHub(NamedTuple):
    """A directory hub that the settings name."""

    url: str
    directory: DirectoryHub
    is_directory: bool = True

    def read_refs(self, repo: RepoId) -> Refs:
        """See :class:`kernels.hub.Hub`."""
        with self._reading():
            self._require(repo)
            self._require_folders(repo, "refs/heads")
            return directory.read_refs(self.directory, repo)

    def read_tree(self, repo: RepoId, commit: str, below: str = "") -> tuple[TreeFile, ...]:
        """See :class:`kernels.hub.Hub`; the listing is verified against the commit id."""
        with self._reading():
            self._require(repo)
            try:
                listing = directory.read_listing(self.directory, repo, commit)
            except FileNotFoundError:
                self._require_folders(repo, "trees")
                raise RevisionNotFoundError(
                    str(repo), commit, f"{repo} on {self.url} has no commit {commit}."
                ) from None
        prefix = f"{below}/" if below else ""
        return tuple(file for file in listing.files if file.path.startswith(prefix))

    def find_commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """See :class:`kernels.hub.Hub`."""
        with self._reading():
            self._require(repo)
        trees = self.directory.root / repo.owner / repo.name / "trees"
        return tuple(p.stem for p in trees.glob("*.json") if p.stem.startswith(revision))

    def read_chunks(self, repo: RepoId, commit: str, file: TreeFile) -> Iterator[bytes]:
        """See :class:`kernels.hub.Hub`."""
        with self._reading():
            path = directory.file_path(self.directory, repo, commit, file.path)
            source = open_plain(path)
        with source:
            while chunk := self._read_chunk(source):
                yield chunk

    def origin_of(self, repo: RepoId, commit: str, path: str) -> Origin:
        """See :class:`kernels.hub.Sender`: the file itself."""
        place = directory.file_path(self.directory, repo, commit, path)
        return Origin(str(place), "Publish the kernel again, or ask who keeps that folder.")

    def read_organization(self, owner: str) -> Organization | None:
        """See :class:`kernels.hub.Hub`: a folder says nothing of owners."""
        del owner
        return None

    def stamp(self, repo: RepoId) -> tuple[int, ...] | None:
        """See :class:`kernels.hub.Hub`."""
        try:
            return directory.refs_stamp(self.directory, repo)
        except OSError:
            return None

    def find_similar(self, repo: RepoId) -> tuple[str, ...]:
        """See :class:`kernels.hub.Hub`."""
        from difflib import get_close_matches

        try:
            ids = [str(known) for known in directory.repositories(self.directory)]
        except OSError:
            # Not every folder there need be this user's to read.
            return ()
        return tuple(get_close_matches(str(repo), ids, n=3))

    def has_model(self, repo: RepoId) -> bool:
        """See :class:`kernels.hub.Hub`."""
        del repo
        return False

    def _read_chunk(self, source: BinaryIO) -> bytes:
        with self._reading():
            return source.read(CHUNK_BYTES)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            if isinstance(err, KernelError):
                raise
            where = f"{err.filename}: " if err.filename else ""
            raise HubUnreachableError(
                self.url,
                f"The hub {self.url} cannot be read: {where}{err.strerror or err}. Ask who keeps "
                "that folder; publishing the kernel again restores what is missing.",
            ) from err

    def _require(self, repo: RepoId) -> None:
        if directory.has_repository(self.directory, repo):
            return
        if not self.directory.root.is_dir():
            raise HubUnreachableError(
                self.url,
                f"The hub {self.url} cannot be reached: {self.directory.root} is not a directory. "
                "Is it mounted, and is KERNELS_HUB right?",
            )
        # "There is none" would let another hub of the list have that name.
        self._require_folders(repo, "refs", BUILD_FOLDER)
        raise RepoNotFoundError(str(repo), [self.url])

    def _require_folders(self, repo: RepoId, *names: str) -> None:
        """See that nothing else stands where folders of a repository are, or would be."""
        for name in names:
            obstacle = find_obstacle(self.directory.root / repo.owner / repo.name / name)
            if obstacle is not None:
                raise NotADirectoryError(errno.ENOTDIR, "it is no folder", str(obstacle))


def open_directory_hub(url: str) -> FolderHub:
    """Return the hub in the folder that a ``file://`` URL names.

    Raises:
        SettingsError: the URL names another host, or no absolute path.
    """
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    path = unquote(parts.path)
    # file:///C:/hub: on Windows the slash before the drive is no part of the path.
    root = Path(path.lstrip("/") if os.name == "nt" else path)
    if parts.netloc not in {"", "localhost"} or not root.is_absolute():
        raise SettingsError(
            f"KERNELS_HUB: {url!r} names no folder of this machine; expected file:///absolute/path."
        )
    return FolderHub(url=url.rstrip("/"), directory=DirectoryHub(root))
