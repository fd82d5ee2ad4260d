"""Reads, and never writes, the snapshots that the published client left in its cache.

::

    <cache>/kernels--<owner>--<name>/
        refs/<name>                              one line: the commit
        snapshots/<commit>/build/<variant>/...   links to ../../blobs/<etag>

An etag is the git blob id (40 hex digits) or the sha256 (64) of the bytes, so that a file is
verified like any other while it is copied; one that is not such a link promises nothing and is
left out. Offline, such a snapshot stands in for the hub that it came from. Source: "Understand
caching" in the documentation of huggingface_hub.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kernel_spec.document import open_plain, read_plain
from kernel_spec.errors import FormatError
from kernel_spec.metadata import FILE_NAME, parse_metadata
from kernel_spec.names import COMMIT, RepoId
from kernel_spec.wire import Organization, Ref, Refs, TreeFile
from kernels.errors import CacheError, HubUnreachableError, RepoNotFoundError
from kernels.hub import BUILD_FOLDER, CHUNK_BYTES, Origin

_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


class SnapshotHub(NamedTuple):
    """The snapshots of one cache, as the hub that they came from.

    Attributes:
        url: the URL of that hub; trust is a matter of the hub, not of the cache.
        cache: the directory that holds ``kernels--<owner>--<name>``.
    """

    url: str
    cache: Path
    is_directory: bool = False

    def read_refs(self, repo: RepoId) -> Refs:
        """See :class:`kernels.hub.Hub`.

        The client writes no ref for a version that it resolved by itself; its branch is then that
        of the latest snapshot whose metadata names the version.
        """
        folder = self._folder(repo)
        refs = self._versions(folder / "snapshots")
        for path in sorted((folder / "refs").rglob("*")):
            try:
                commit = read_plain(path).decode("ascii", "replace").strip()
            except OSError:
                continue
            if COMMIT.fullmatch(commit):
                refs[path.relative_to(folder / "refs").as_posix()] = commit
        return Refs(branches=tuple(Ref(name, refs[name]) for name in sorted(refs)), tags=())

    def read_tree(
        self, repo: RepoId, commit: str, below: str = BUILD_FOLDER
    ) -> tuple[TreeFile, ...]:
        """See :class:`kernels.hub.Hub`; lists the variants whose module is there."""
        root = self._folder(repo) / "snapshots" / commit
        files = [
            file
            for path in sorted((root / below).rglob("*"))
            if (file := _tree_file(root, path)) is not None
        ]
        whole = {
            "/".join(file.path.split("/")[:2])
            for file in files
            if file.path.endswith("/__init__.py")
        }
        return tuple(file for file in files if "/".join(file.path.split("/")[:2]) in whole)

    def find_commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """See :class:`kernels.hub.Hub`."""
        folders = (self._folder(repo) / "snapshots").glob("*")
        return tuple(path.name for path in folders if path.name.startswith(revision))

    def read_chunks(self, repo: RepoId, commit: str, file: TreeFile) -> Iterator[bytes]:
        """See :class:`kernels.hub.Hub`."""
        path = self._place(repo, commit, file.path)
        try:
            with open_plain(path) as source:
                while chunk := source.read(CHUNK_BYTES):
                    yield chunk
        except OSError as err:
            advice = "Let this user read it, or load the kernel once with the network on."
            raise CacheError(path, err, advice=advice) from None

    def origin_of(self, repo: RepoId, commit: str, path: str) -> Origin:
        """See :class:`kernels.hub.Sender`: the file itself, below ``blobs``."""
        place = self._place(repo, commit, path).resolve()
        advice = "Remove that file, and load the kernel once with the network on."
        return Origin(f"{place}, in the cache of the published client,", advice)

    def read_organization(self, owner: str) -> Organization | None:
        """See :class:`kernels.hub.Hub`: a cache cannot tell."""
        raise HubUnreachableError(self.url, f"offline: {self.url} cannot be asked about {owner}.")

    def stamp(self, repo: RepoId) -> tuple[int, ...] | None:
        """See :class:`kernels.hub.Hub`."""
        del repo
        return None

    def find_similar(self, repo: RepoId) -> tuple[str, ...]:
        """See :class:`kernels.hub.Hub`."""
        del repo
        return ()

    def has_model(self, repo: RepoId) -> bool:
        """See :class:`kernels.hub.Hub`."""
        del repo
        return False

    def _versions(self, folder: Path) -> dict[str, str]:
        found = {}
        named = [path for path in folder.glob("*") if COMMIT.fullmatch(path.name)]
        # One that cannot be read hides no other.
        snapshots = [path for path in named if path.is_dir()]
        for snapshot in sorted(snapshots, key=lambda path: (path.stat().st_mtime_ns, path.name)):
            for path in snapshot.glob(f"{BUILD_FOLDER}/*/{FILE_NAME}"):
                try:
                    found[f"v{parse_metadata(read_plain(path)).version}"] = snapshot.name
                except (OSError, FormatError):
                    continue
        return found

    def _place(self, repo: RepoId, commit: str, path: str) -> Path:
        return self._folder(repo) / "snapshots" / commit / path

    def _folder(self, repo: RepoId) -> Path:
        folder = self.cache / f"kernels--{repo.owner}--{repo.name}"
        if not folder.is_dir():
            raise RepoNotFoundError(str(repo), [self.url])
        return folder


def _tree_file(root: Path, path: Path) -> TreeFile | None:
    """Return the file at a link into ``blobs``; None for anything else."""
    if not path.is_symlink():
        return None
    blob = path.readlink()
    if blob.parent.name != "blobs" or _ETAG.fullmatch(blob.name) is None or not path.is_file():
        return None
    return TreeFile(
        path=path.relative_to(root).as_posix(),
        size=path.stat().st_size,
        oid=blob.name if len(blob.name) == 40 else "0" * 40,
        sha256=blob.name if len(blob.name) == 64 else None,
    )
