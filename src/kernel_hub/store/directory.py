"""A directory hub as a store: nothing is served that its commit does not promise."""

from __future__ import annotations

import logging
import os
import stat
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from kernel_hub.errors import DamagedFileError, RepositoryNotFoundError, RevisionNotFoundError
from kernel_spec import directory
from kernel_spec.directory import DirectoryHub, Listing
from kernel_spec.errors import IntegrityError
from kernel_spec.listing import hash_file
from kernel_spec.names import COMMIT, RepoId, is_owner
from kernel_spec.wire import Refs, TreeFile

log = logging.getLogger("kernel_hub.store")

# Receipts are 200 bytes or so each.
RECEIPTS_KEPT = 100_000

# A plain file where an owner or a repository would be is as good as none.
MISSING = (FileNotFoundError, NotADirectoryError)

Receipt = tuple[int, int, int, int]
Promise = tuple[int, str, str | None]


class DirectoryStore:
    """Serves a directory hub and remembers refs and which files it has hashed.

    A file is hashed before it is first served; a receipt (device, inode, size, time of writing)
    saves the next hash, also in a later commit that holds the same file by a hard link.
    """

    def __init__(self, root: Path) -> None:
        self._hub = DirectoryHub(root.resolve())
        self._refs: dict[RepoId, tuple[tuple[int, ...], Refs]] = {}
        self._receipts: OrderedDict[Receipt, Promise] = OrderedDict()
        self._lock = Lock()

    def has_owner(self, owner: str) -> bool:
        """Say whether the owner has a folder."""
        return is_owner(owner) and (self._hub.root / owner).is_dir()

    def list_repositories(self, owner: str | None) -> tuple[RepoId, ...]:
        """List the repositories that there are now."""
        if owner is not None and not is_owner(owner):
            return ()
        return directory.repositories(self._hub, owner)

    def read_refs(self, repo: RepoId) -> Refs:
        """Read branches and tags, anew only if one was written since.

        An unversioned repository is always looked through: its files may be edited in place.
        """
        try:
            if not directory.is_versioned(directory.repository_path(self._hub, repo)):
                return directory.read_refs(self._hub, repo)
            stamp = directory.refs_stamp(self._hub, repo)
            known = self._refs.get(repo)
            if known is not None and known[0] == stamp:
                return known[1]
            refs = directory.read_refs(self._hub, repo)
        except MISSING as err:
            self._refs.pop(repo, None)
            raise RepositoryNotFoundError(f"This hub has no repository {repo}.") from err
        self._refs[repo] = (stamp, refs)
        return refs

    def find_proposal(self, repo: RepoId, ref: str) -> str | None:
        """Return the commit of a proposal, or None."""
        return directory.find_branch(self._hub, repo, ref)

    def find_commits(self, repo: RepoId, prefix: str) -> tuple[str, ...]:
        """Return the commits whose ids begin so; an unversioned repository has no others."""
        trees = directory.repository_path(self._hub, repo) / "trees"
        try:
            with os.scandir(trees) as entries:
                stems = [entry.name.removesuffix(".json") for entry in entries]
        except MISSING:
            return tuple(
                ref.commit for ref in self.read_refs(repo).branches if ref.commit.startswith(prefix)
            )
        return tuple(stem for stem in stems if stem.startswith(prefix) and COMMIT.fullmatch(stem))

    def read_listing(self, repo: RepoId, commit: str) -> Listing:
        """Read a commit's listing and check it against the commit's id."""
        try:
            return directory.read_listing(self._hub, repo, commit)
        except MISSING as err:
            raise RevisionNotFoundError(repo, commit) from err

    def commit_time(self, repo: RepoId, commit: str) -> datetime:
        """Return when the commit was published here: its folder's time of writing."""
        place = directory.snapshot_path(self._hub, repo, commit)
        try:
            return datetime.fromtimestamp(place.stat().st_mtime, UTC)
        except MISSING as err:
            raise RevisionNotFoundError(repo, commit) from err

    def get_content(self, repo: RepoId, commit: str, file: TreeFile) -> Path:
        """Return the place of a file, hashed now or known to be as it was when last hashed."""
        place = directory.file_path(self._hub, repo, commit, file.path)
        try:
            place = place.resolve(strict=True)
            snapshot = directory.snapshot_path(self._hub, repo, commit)
            fault = self._find_fault(snapshot, place, file)
        except (OSError, IntegrityError) as err:
            fault = str(err)
        if fault is not None:
            log.error("%s: %s", place, fault)
            raise DamagedFileError(repo, commit, file.path)
        return place

    def _find_fault(self, snapshot: Path, place: Path, file: TreeFile) -> str | None:
        # A link at the repository itself is the operator's choice; none leads out of a snapshot.
        if not place.is_relative_to(snapshot.resolve()):
            return "found a symbolic link that leads out of the snapshot"
        found = place.lstat()
        if not stat.S_ISREG(found.st_mode):
            return "found something that is not a plain file"
        # Not the time of change: that moves whenever a later commit links to the same file.
        receipt = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        promised = (file.size, file.oid, file.sha256)
        if self._receipts.get(receipt) == promised:
            return None
        if found.st_size != file.size:
            return f"found {found.st_size} bytes, expected {file.size}"
        hashes = hash_file(place)
        if hashes != promised:
            return f"found bytes with the blob id {hashes[1]}, expected {file.oid}"
        with self._lock:
            self._receipts[receipt] = promised
            if len(self._receipts) > RECEIPTS_KEPT:
                self._receipts.popitem(last=False)
        return None
