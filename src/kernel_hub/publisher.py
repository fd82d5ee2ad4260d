"""The story of a write: right branch, operations applied, bytes found, one commit onto its parent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import assert_never

from kernel_hub.errors import (
    EntryNotFoundError,
    MovedError,
    RepositoryNotFoundError,
    RequestError,
    RevisionNotFoundError,
    TakenError,
)
from kernel_hub.service.catalogue import Catalogue
from kernel_hub.service.operations import (
    AddFile,
    AddLarge,
    CommitRequest,
    DeleteFile,
    DeleteFolder,
    Operation,
)
from kernel_hub.service.revision import HEADS, is_full_commit
from kernel_hub.service.snapshot import Snapshot
from kernel_hub.store.uploads import Uploads
from kernel_spec import directory, publishing, refs
from kernel_spec.directory import DirectoryHub
from kernel_spec.errors import ConflictError, FormatError
from kernel_spec.names import RepoId
from kernel_spec.refs import DEFAULT_BRANCH, RefKind
from kernel_spec.staging import HashedFile
from kernel_spec.wire import TreeFile

# A commit that names no parent is built anew on what others have committed meanwhile.
ATTEMPTS = 50

Content = TreeFile | AddFile | AddLarge


class Publisher:
    """Writes to the repositories of a directory hub; each method is one transaction."""

    def __init__(
        self,
        hub: DirectoryHub,
        catalogue: Catalogue,
        uploads: Uploads,
        trusted_owners: Collection[str] = (),
    ) -> None:
        self._hub = hub
        self._trusted_owners = trusted_owners
        self._catalogue = catalogue
        self.uploads = uploads

    def create_repository(self, repo: RepoId) -> None:
        """Make a repository with an empty ``main``.

        Raises:
            TakenError: it is there.
            RequestError: its name, or that of its owner, differs from another in case only.
        """
        try:
            publishing.reserve(self._hub, repo, owners=self._trusted_owners)
        except FormatError as err:
            raise RequestError(f"{err}.") from err
        if directory.has_repository(self._hub, repo):
            raise TakenError(f"The repository {repo} exists.")
        refs.create_repository(self._hub, repo)

    def create_ref(self, repo: RepoId, kind: RefKind, name: str, revision: str | None) -> None:
        """Set a new branch or tag at a revision; None is the default branch.

        Raises:
            RepositoryNotFoundError, RevisionNotFoundError: there is no such thing.
            RequestError: the name cannot be one.
            TakenError: there is one of that name.
        """
        self.refuse_plain(repo)
        if name == "HEAD" or name.startswith(("refs/", "-")) or is_full_commit(name):
            raise RequestError(
                f"{name[:100]!r} cannot name a {kind}: it would mean something else."
            )
        commit = self._catalogue.get_snapshot(repo, revision).commit
        try:
            refs.create_ref(self._hub, repo, kind, name, commit)
        except FormatError as err:
            raise RequestError(str(err)) from err
        except ConflictError as err:
            raise TakenError(str(err)) from err

    def delete_ref(self, repo: RepoId, kind: RefKind, name: str) -> None:
        """Take a branch or tag away.

        Raises:
            RepositoryNotFoundError, RevisionNotFoundError: there is no such thing.
            RequestError: it is ``main``, which every repository has.
        """
        self.refuse_plain(repo)
        if kind is RefKind.BRANCH and name == DEFAULT_BRANCH:
            raise RequestError(f"{repo}: the branch {DEFAULT_BRANCH} cannot be deleted.")
        try:
            refs.delete_ref(self._hub, repo, kind, name)
        except (FileNotFoundError, FormatError) as err:
            raise RevisionNotFoundError(repo, name) from err

    def refuse_plain(self, repo: RepoId) -> None:
        """Refuse a repository that has no versions: it is a folder that people edit.

        Raises:
            RepositoryNotFoundError: there is no such repository.
            RequestError: it is such a folder.
        """
        self._catalogue.read_refs(repo)
        if not directory.is_spelt_so(self._hub, repo):
            raise RepositoryNotFoundError(f"This hub has no repository {repo}.")
        if not directory.is_versioned(directory.repository_path(self._hub, repo)):
            raise RequestError(
                f"{repo} is a plain folder on this hub, without versions: it is written to there."
            )

    def get_head(self, repo: RepoId, revision: str) -> str:
        """Return where a branch is that can be committed to, or a proposal.

        Raises:
            RepositoryNotFoundError, RevisionNotFoundError: there is no such branch.
            RequestError: the repository has no versions.
        """
        self.refuse_plain(repo)
        found = directory.find_branch(self._hub, repo, revision.removeprefix(HEADS))
        if found is None:
            raise RevisionNotFoundError(repo, revision)
        return found

    def commit(self, repo: RepoId, revision: str, request: CommitRequest, folder: Path) -> str:
        """Write one commit onto a branch and return its id.

        Without a parent in the request the commit goes on top of whatever is there. The same request
        again, with the same parent, gives the same commit.

        Args:
            repo: the repository.
            revision: the branch.
            request: what to do.
            folder: a place for links to large files while this is under way.

        Raises:
            RepositoryNotFoundError, RevisionNotFoundError: there is no such branch.
            EntryNotFoundError: what should go is not there.
            MovedError: the branch is not at the parent.
            RequestError: the files cannot stand in one commit, or bytes are missing.
        """
        branch = revision.removeprefix(HEADS)
        for _ in range(ATTEMPTS):
            head = self.get_head(repo, branch)
            base = self._get_base(repo, branch, head, request.parent)
            contents = apply_operations(base, request.operations)
            _check_names(contents, branch)
            files = {
                path: self._find_bytes(repo, base, path, content, folder)
                for path, content in contents.items()
            }
            try:
                commit = publishing.publish(
                    self._hub, repo, files, branch=branch, parent=base.commit
                )
            except ConflictError as err:
                if request.parent is not None:
                    raise MovedError(str(err)) from err
                continue
            self._tidy(repo, request.operations)
            return commit
        raise MovedError(f"{repo}: the branch {branch} moves too fast to commit to; try again.")

    def list_large(self, repo: RepoId) -> Mapping[str, tuple[Snapshot, TreeFile]]:
        """Return by sha256 the large files that branches and tags hold, each with a commit that has it.

        Raises:
            RepositoryNotFoundError: no such repository.
        """
        found = self._catalogue.read_refs(repo)
        held: dict[str, tuple[Snapshot, TreeFile]] = {}
        for commit in dict.fromkeys(ref.commit for ref in (*found.branches, *found.tags)):
            snapshot = self._catalogue.get_snapshot(repo, commit)
            for file in snapshot.stored.values():
                if file.sha256 is not None:
                    held.setdefault(file.sha256, (snapshot, file))
        return held

    def _get_base(self, repo: RepoId, branch: str, head: str, parent: str | None) -> Snapshot:
        """Return the commit that is built on: the parent, also where a retry comes after its success."""
        base = self._catalogue.get_snapshot(repo, head)
        if parent is None or parent == head:
            return base
        if base.parent == parent:
            return self._catalogue.get_snapshot(repo, parent)
        raise MovedError(
            f"{repo}: the branch {branch} is at {head}, not at the parent {parent[:40]}; "
            "somebody else has published: look at the branch and commit again."
        )

    def _find_bytes(
        self, repo: RepoId, base: Snapshot, path: str, content: Content, folder: Path
    ) -> Path | TreeFile | HashedFile:
        match content:
            case TreeFile():
                return content
            case AddFile():
                return content.place
            case AddLarge():
                held = base.stored.get(path)
                if held is not None and held.sha256 == content.sha256:
                    return held
                return self._find_large_bytes(repo, content, folder)
            case _:
                assert_never(content)

    def _find_large_bytes(self, repo: RepoId, content: AddLarge, folder: Path) -> HashedFile | Path:
        claimed = self.uploads.claim(repo, content.sha256, folder)
        if claimed is not None:
            if content.size not in (None, claimed.file.size):
                raise RequestError(
                    f"{content.path}: size: expected the {claimed.file.size} bytes that were uploaded, "
                    f"found {content.size}."
                )
            return claimed
        found = self.list_large(repo).get(content.sha256)
        if found is None:
            raise RequestError(
                f"{content.path}: no bytes with the sha256 {content.sha256} were uploaded to {repo}; "
                "upload the file, then commit again."
            )
        snapshot, file = found
        place = self._catalogue.get_content(snapshot, file.path)[1]
        if isinstance(place, Path):
            return HashedFile(place, file)
        copy = folder / content.sha256
        copy.write_bytes(place)
        return copy

    def _tidy(self, repo: RepoId, operations: tuple[Operation, ...]) -> None:
        for operation in operations:
            if isinstance(operation, AddLarge):
                self.uploads.discard(repo, operation.sha256)
        self.uploads.sweep(repo)


def apply_operations(base: Snapshot, operations: tuple[Operation, ...]) -> dict[str, Content]:
    """Return what a commit holds after its operations, each applied to what those before left.

    Raises:
        EntryNotFoundError: a file or folder that should go is not there.
    """
    contents: dict[str, Content] = dict(base.stored)
    for operation in operations:
        match operation:
            case AddFile() | AddLarge():
                contents[operation.path] = operation
            case DeleteFile():
                if contents.pop(operation.path, None) is None:
                    raise _missing(base, operation.path, "file")
            case DeleteFolder():
                below = [path for path in contents if path.startswith(f"{operation.path}/")]
                if not below:
                    raise _missing(base, operation.path, "folder")
                for path in below:
                    del contents[path]
            case _:
                assert_never(operation)
    return contents


def _check_names(contents: Mapping[str, Content], branch: str) -> None:
    try:
        publishing.check_names(contents, (branch,))
    except FormatError as err:
        raise RequestError(str(err)) from err


def _missing(base: Snapshot, path: str, kind: str) -> EntryNotFoundError:
    # Clients look for these words, to explain what a folder needs.
    words = "A file with this name doesn't exist: "
    return EntryNotFoundError(base.repo, base.commit, path, kind=kind, before=words)
