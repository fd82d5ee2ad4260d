"""The cache's documents: what hubs said of repositories and commits, and where variants lie.

::

    <KERNELS_CACHE>/store-v1/
        refs/<hub>/<owner>/<name>.json            what the hub said last of the repository
        trees/<hub>/<owner>/<name>/<commit>.json  the files of a commit
        variants/<digest>/                        an installed variant (kernels.install)
        sources/<hub>/<owner>/<name>/<commit>.json  the sources that a commit carries
        built/<key>                               the digest of what was built from sources here
        metadata/<hash>                           the metadata.json of a variant
        status/<hash>                             the kernel-status.toml of a repository
        index/<key>                               the digest of a listing without sha256 hashes
        locks/  tmp/                              for installs

``<hub>`` is the hash of the hub's URL: what one hub says of a name is no word on another hub's.
Every document appears whole, by rename; one that cannot be read counts as absent, which is said once
where it is there, and one that cannot be written is done without, so a read-only cache works. None is waited for to be on the disk:
what a loss of power spoils cannot be read, or is not what it must hash to, and is asked for again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernel_spec import whole_file
from kernel_spec.document import UNREADABLE, read_plain
from kernel_spec.names import SHA256, RepoId
from kernel_spec.wire import Ref, Refs, TreeFile
from kernels import log

FOLDER = "store-v1"
DOCUMENT_FOLDERS = ("refs", "trees", "sources", "built", "metadata", "status", "index")

# A temporary file that is older than this, in seconds, is of a process that was killed.
LEFTOVER_SECONDS = 600.0

_RECORD_FORMAT = 1
_TREE_FORMAT = 1


class Store(NamedTuple):
    """The cache below one root."""

    root: Path

    def folder(self, name: str) -> Path:
        """Return one of the folders of the head of this module."""
        return self.root / FOLDER / name


class Record(NamedTuple):
    """What a hub said of a repository.

    Attributes:
        checked: when it was asked, in seconds since 1970.
        refs: its branches and tags, or None where the hub has no such repository.
        trusted: whether it said that the owner is a trusted publisher; None: it was not asked.
        trust_checked: when it was asked that.
    """

    checked: float
    refs: Refs | None
    trusted: bool | None = None
    trust_checked: float = 0.0


def read_record(store: Store, hub_url: str, repo: RepoId) -> Record | None:
    """Return what is remembered of a repository on a hub, or None."""
    return read_record_file(_record_path(store, hub_url, repo))


def read_record_file(path: Path) -> Record | None:
    """Return what one of the documents below ``refs/`` says, or None."""
    try:
        document = json.loads(_read_document(path))
        if document["format"] != _RECORD_FORMAT:
            return None
        refs = document["refs"]
        return Record(
            checked=float(document["checked"]),
            refs=None
            if refs is None
            else Refs(
                branches=tuple(Ref(str(n), str(c)) for n, c in refs["branches"]),
                tags=tuple(Ref(str(n), str(c)) for n, c in refs["tags"]),
            ),
            # Nothing but true is trust.
            trusted=document["trusted"] if isinstance(document["trusted"], bool) else None,
            trust_checked=float(document["trust_checked"]),
        )
    except UNREADABLE:
        return None


def _read_document(path: Path) -> bytes:
    """Read a document; say so where it is there and the system or its owner forbids that.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return read_plain(path)
    except OSError as err:
        absent = isinstance(err, FileNotFoundError | NotADirectoryError)
        if not absent and log.is_new("unread", str(path)):
            log.logger().warning(
                "%s cannot be read and counts as absent: %s", path, err.strerror or err
            )
        raise


def write_record(store: Store, hub_url: str, repo: RepoId, record: Record) -> None:
    """Remember what a hub said of a repository; an unwritable cache goes without."""
    refs = record.refs
    document: dict[str, Any] = {
        "format": _RECORD_FORMAT,
        "hub": hub_url,
        "repo": str(repo),
        "checked": record.checked,
        "trusted": record.trusted,
        "trust_checked": record.trust_checked,
        "refs": refs
        and {
            "branches": [[ref.name, ref.commit] for ref in refs.branches],
            "tags": [[ref.name, ref.commit] for ref in refs.tags],
        },
    }
    _try_write(_record_path(store, hub_url, repo), json.dumps(document, indent=1).encode())


def read_tree(store: Store, hub_url: str, repo: RepoId, commit: str) -> tuple[TreeFile, ...] | None:
    """Return the remembered files of a commit, or None."""
    return read_tree_file(_tree_path(store, hub_url, repo, commit))


def read_tree_file(path: Path) -> tuple[TreeFile, ...] | None:
    """Return the files that one of the documents below ``trees/`` lists, or None."""
    try:
        document = json.loads(_read_document(path))
        if document["format"] != _TREE_FORMAT:
            return None
        return tuple(
            TreeFile(
                path=str(path),
                size=int(size),
                oid=str(oid),
                sha256=None if sha256 is None else str(sha256),
                executable=bool(executable),
            )
            for path, size, oid, sha256, executable in document["files"]
        )
    except UNREADABLE:
        return None


def write_tree(
    store: Store, hub_url: str, repo: RepoId, commit: str, files: Sequence[TreeFile]
) -> None:
    """Remember the files of a commit; an unwritable cache goes without."""
    _try_write(_tree_path(store, hub_url, repo, commit), _format_files(files))


def _format_files(files: Sequence[TreeFile]) -> bytes:
    rows = [
        [file.path, file.size, file.oid, file.sha256, file.executable]
        for file in sorted(files, key=lambda file: file.path)
    ]
    return json.dumps({"format": _TREE_FORMAT, "files": rows}, indent=0).encode()


def read_sources(
    store: Store, hub_url: str, repo: RepoId, commit: str
) -> tuple[TreeFile, ...] | None:
    """Return the remembered sources of a commit, or None."""
    return read_tree_file(_tree_path(store, hub_url, repo, commit, folder="sources"))


def write_sources(
    store: Store, hub_url: str, repo: RepoId, commit: str, files: Sequence[TreeFile]
) -> None:
    """Remember the sources of a commit; an unwritable cache goes without."""
    path = _tree_path(store, hub_url, repo, commit, folder="sources")
    _try_write(path, _format_files(files))


def find_built(store: Store, key: str) -> str | None:
    """Return the digest of the variant that was built from sources under a key, or None."""
    return _as_digest(read_kept(store, "built", key))


def write_built(store: Store, key: str, digest: str) -> None:
    """Remember what was built from sources; an unwritable cache goes without."""
    write_kept(store, "built", key, f"{digest}\n".encode())


def read_kept(store: Store, folder: str, name: str) -> bytes | None:
    """Return the bytes of a document that is kept under one name in a folder, unverified, or None."""
    try:
        return _read_document(store.folder(folder) / name)
    except UNREADABLE:
        return None


def write_kept(store: Store, folder: str, name: str, data: bytes) -> None:
    """Keep the bytes of a document under one name; an unwritable cache goes without."""
    _try_write(store.folder(folder) / name, data)


def find_cached_commits(store: Store, hub_url: str, repo: RepoId, prefix: str) -> list[str]:
    """List the commits whose files are remembered and whose ids begin with a text, sorted."""
    folder = _tree_path(store, hub_url, repo, "x").parent
    return sorted(path.stem for path in folder.glob(f"{prefix}*.json"))


def find_digest(store: Store, files: Sequence[TreeFile]) -> str | None:
    """Return the digest that a variant with these files has or had, if that can be known.

    Args:
        store: the cache.
        files: the variant's files, with paths from its own root.
    """
    known = [(file.path, file.size, file.sha256) for file in files if file.sha256 is not None]
    if len(known) == len(files):
        from kernel_spec.digest import variant_digest

        return variant_digest(known)
    return _as_digest(read_kept(store, "index", listing_key(files)))


def _as_digest(data: bytes | None) -> str | None:
    digest = (data or b"").decode("ascii", "replace").strip()
    return digest if SHA256.fullmatch(digest) else None


def write_index(store: Store, files: Sequence[TreeFile], digest: str) -> None:
    """Remember the digest of a listing whose hashes are not all sha256."""
    if any(file.sha256 is None for file in files):
        write_kept(store, "index", listing_key(files), f"{digest}\n".encode())


def listing_key(files: Sequence[TreeFile]) -> str:
    """Name a variant by what its listing says, before its bytes are here: 64 hex digits."""
    import hashlib  # as below: `import kernels` hashes nothing

    lines = sorted(f"{file.path}\0{file.size}\0{file.sha256 or file.oid}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_whole(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Write a file of the cache so that it appears whole or not at all; its folder is made.

    Args:
        path: the file.
        data: its bytes.
        lasting: whether to wait until they are on the disk, for what cannot be had again.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write_whole(path, data, lasting=lasting)


def _try_write(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data, lasting=False)
        _sweep_beside(path)
    except OSError:
        return


def _sweep_beside(path: Path) -> None:
    """Remove what killed processes left beside a document that was just written."""
    with os.scandir(path.parent) as entries:
        leftovers = [entry for entry in entries if whole_file.is_temporary(entry.name)]
    for entry in leftovers:
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFTOVER_SECONDS:
            Path(entry.path).unlink(missing_ok=True)


def _hub_key(url: str) -> str:
    import hashlib

    return hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:16]


def _record_path(store: Store, hub_url: str, repo: RepoId) -> Path:
    return store.folder("refs") / _hub_key(hub_url) / repo.owner / f"{repo.name}.json"


def _tree_path(
    store: Store, hub_url: str, repo: RepoId, commit: str, *, folder: str = "trees"
) -> Path:
    return store.folder(folder) / _hub_key(hub_url) / repo.owner / repo.name / f"{commit}.json"
