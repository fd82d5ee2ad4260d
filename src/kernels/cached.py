"""What is in the cache: every variant, where it is from and when it was last used, and what killed processes left."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from kernel_spec.document import UNREADABLE, open_plain, read_plain
from kernel_spec.metadata import FILE_NAME
from kernel_spec.names import RepoId
from kernel_spec.whole_file import is_temporary
from kernels.errors import CacheError
from kernels.install import find_leftovers
from kernels.store import (
    DOCUMENT_FOLDERS,
    LEFTOVER_SECONDS,
    Store,
    find_digest,
    read_record_file,
    read_tree_file,
)
from kernels.trees import variants_of
from kernels.verify import RECEIPT_NAME, Damage, read_manifest, scan

TREE_FOLDERS = ("trees", "sources")


class CachedVariant(NamedTuple):
    """A variant in the cache.

    Attributes:
        digest: the name of its whole content.
        place: its folder, ``variants/<digest>``.
        name: the name of the variant; empty where its manifest cannot be read.
        kernel: what its metadata calls the kernel.
        repositories: the ids of the repositories that the cache knows it from, sorted.
        size: bytes.
        used: when it was last verified for a load, in seconds since 1970, as exactly as the file
            system keeps that (``knows_use``).
        unread: why its manifest cannot be read now, though it may be right; empty where it can.
    """

    digest: str
    place: Path
    name: str
    kernel: str
    repositories: tuple[str, ...]
    size: int
    used: float
    unread: str = ""

    @property
    def title(self) -> str:
        """The repositories that it is of, or the kernel's name."""
        return ", ".join(self.repositories) or f"?/{self.kernel}"


class CachedCommit(NamedTuple):
    """The listing of a commit in the cache, and whether a branch or a tag is there now.

    Attributes:
        path: the document.
        repo: the repository's id.
        commit: the commit.
        named: whether a branch or a tag of the repository names it; True where the cache knows
            none of the repository's branches.
        digests: the variants that it has, as far as their digests can be told.
        documents: the names of the other documents that belong to it.
    """

    path: Path
    repo: str
    commit: str
    named: bool
    digests: frozenset[str]
    documents: frozenset[str]


class Leftover(NamedTuple):
    """What a killed process left; ``size`` in bytes."""

    path: Path
    size: int


def require_readable(store: Store) -> None:
    """See that the cache's folders are folders that can be read, or not there yet.

    Raises:
        CacheError: one is not.
    """
    folders = (*DOCUMENT_FOLDERS, "variants", "locks", "tmp")
    for path in (store.root, store.folder(""), *map(store.folder, folders)):
        try:
            # Through the dot, since what is in a folder is out of reach where it may only be listed.
            os.scandir(f"{path}/.").close()
        except FileNotFoundError:
            continue
        except OSError as err:
            advice = (
                "Let this user read it, move away what is there in place of a folder, or set "
                "KERNELS_CACHE to another directory."
            )
            raise CacheError(path, err, advice=advice) from err


def require_documents(store: Store) -> None:
    """See that what says which variants and documents belong together can be read.

    Raises:
        CacheError: it cannot; then nobody knows what is still referred to.
    """
    for root in map(store.folder, (*TREE_FOLDERS, "refs", "index", "built")):
        for folder, _, names in os.walk(root, onerror=_refuse_unread):
            for path in (Path(folder, name) for name in names):
                try:
                    if path.is_file():
                        open_plain(path).close()
                except OSError as err:
                    _refuse_unread(err)


def _refuse_unread(err: OSError) -> None:
    if isinstance(err, FileNotFoundError):
        return  # it is not there yet, or another process has removed it
    advice = (
        "It says what belongs together, so nothing is removed. Let this user read it, or run this as "
        "the user whose it is."
    )
    raise CacheError(Path(err.filename), err, advice=advice) from err


def list_variants(store: Store, commits: Collection[CachedCommit]) -> list[CachedVariant]:
    """List the variants of the cache, by digest."""
    folder = store.folder("variants")
    places = (
        sorted(place for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else []
    )
    owners: dict[str, set[str]] = {}
    for commit in commits:
        for digest in commit.digests:
            owners.setdefault(digest, set()).add(commit.repo)
    return [_describe(place, owners.get(place.name, set())) for place in places]


def list_commits(store: Store) -> list[CachedCommit]:
    """List the commits whose files the cache remembers."""
    found = []
    for folder in TREE_FOLDERS:
        root = store.folder(folder)
        for path in sorted(root.glob("*/*/*/*.json")):
            if is_temporary(path.name):
                continue
            hub, owner, name = path.relative_to(root).parts[:3]
            files = read_tree_file(path) or ()
            variants = variants_of(files).values() if folder == "trees" else ()
            digests = (find_digest(store, files) for files in variants)
            found.append(
                CachedCommit(
                    path=path,
                    repo=str(RepoId(owner, name)),
                    commit=path.stem,
                    named=_is_named(store, hub, owner, name, path.stem),
                    digests=frozenset(digest for digest in digests if digest is not None),
                    documents=frozenset(file.sha256 or file.oid for file in files),
                )
            )
    return found


def list_leftovers(store: Store) -> list[Leftover]:
    """List what killed processes left: half installs, and temporary files that nobody writes any more."""
    now = time.time()
    found = [Leftover(path, _size_of(path)) for path in find_leftovers(store)]
    roots = [store.folder(name) for name in (*DOCUMENT_FOLDERS, "variants")]
    for path in (path for root in roots for path in _temporary_files(root)):
        try:
            facts = path.lstat()
        except OSError:
            continue
        if now - facts.st_mtime > LEFTOVER_SECONDS:
            found.append(Leftover(path, facts.st_size))
    return sorted(found)


def list_documents(store: Store) -> list[tuple[Path, str]]:
    """List the documents that belong to a commit or a variant, with the name that it has for them."""
    found = []
    for folder in ("metadata", "status"):
        found += [(path, path.name) for path in _files(store.folder(folder))]
    for folder in ("index", "built"):
        for path in _files(store.folder(folder)):
            try:
                found.append((path, read_plain(path).decode("ascii").strip()))
            except UNREADABLE:
                found.append((path, ""))
    return sorted(found)


def knows_use(store: Store) -> bool:
    """Say whether the file system keeps when a file was read; else only installs are known."""
    try:
        flags = os.statvfs(store.root).f_flag
    except (OSError, AttributeError):
        return False
    return not flags & getattr(os, "ST_NOATIME", 0)


def _describe(place: Path, owners: set[str]) -> CachedVariant:
    manifest = read_manifest(place)
    if isinstance(manifest, Damage):
        return CachedVariant(
            digest=place.name,
            place=place,
            name="",
            kernel=f"({manifest.kind})",
            repositories=tuple(sorted(owners)),
            size=_size_of(place),
            used=0.0,
            unread=manifest.faults[0] if manifest.unread else "",
        )
    return CachedVariant(
        digest=place.name,
        place=place,
        name=manifest.variant,
        kernel=_kernel_name(place / manifest.variant / FILE_NAME),
        repositories=tuple(sorted(owners)),
        size=sum(size for size, _ in manifest.files.values()),
        used=_last_use(place),
    )


def _last_use(place: Path) -> float:
    # Every load reads the receipt, and nothing else does.
    for path in (place / RECEIPT_NAME, place):
        try:
            facts = path.stat()
        except OSError:
            continue
        return max(facts.st_atime, facts.st_mtime)
    return 0.0


def _kernel_name(path: Path) -> str:
    try:
        return str(json.loads(read_plain(path)).get("name", "?"))
    except UNREADABLE:
        return "?"


def _is_named(store: Store, hub: str, owner: str, name: str, commit: str) -> bool:
    record = read_record_file(store.folder("refs") / hub / owner / f"{name}.json")
    if record is None or record.refs is None:
        return True
    return any(ref.commit == commit for ref in (*record.refs.branches, *record.refs.tags))


def _temporary_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        if root.name == "variants" and Path(folder).parent == root:
            # Receipts and verdicts lie beside a variant's own files.
            folders.clear()
        yield from (Path(folder, name) for name in files if is_temporary(name))


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not is_temporary(path.name)]
    except OSError:
        return []


def _size_of(path: Path) -> int:
    try:
        return (
            sum(facts.st_size for _, facts in scan(path)) if path.is_dir() else path.lstat().st_size
        )
    except OSError:
        return 0
