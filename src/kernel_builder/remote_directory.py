"""Publishing to a directory hub: a folder with the layout of :mod:`kernel_spec.directory`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kernel_builder.commit_plan import CommitOptions, CommitPlan, RemoteBranch, Written
from kernel_builder.errors import UploadError
from kernel_spec import directory, publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.errors import UsageError
from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile


@dataclass(frozen=True, slots=True)
class DirectoryRemote:
    """A directory hub that is written to."""

    hub: DirectoryHub

    @property
    def url(self) -> str:
        """The hub's URL."""
        return self.hub.root.as_uri()

    @property
    def is_directory(self) -> bool:
        """It is a folder."""
        return True

    def read_refs(self, repo: RepoId) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Read the commits of branches and of tags, by name."""
        if not directory.has_repository(self.hub, repo):
            return {}, {}
        refs = directory.read_refs(self.hub, repo)
        return (
            {ref.name: ref.commit for ref in refs.branches},
            {ref.name: ref.commit for ref in refs.tags},
        )

    def read_branch(self, repo: RepoId, name: str, commit: str | None) -> RemoteBranch:
        """Read what a branch holds."""
        if commit is None:
            return RemoteBranch(name=name, commit=None)
        listing = directory.read_listing(self.hub, repo, commit)
        return RemoteBranch(name=name, commit=commit, files=listing.files)

    def read_new_branch(
        self,
        repo: RepoId,  # noqa: ARG002
        name: str,
        branches: Mapping[str, str],  # noqa: ARG002
    ) -> RemoteBranch:
        """Say that a new branch begins with nothing."""
        return RemoteBranch(name=name, commit=None)

    def find_left_over(self, repo: RepoId, branches: Iterable[str]) -> tuple[str, ...]:  # noqa: ARG002
        """Say that nothing is: what is cut off leaves no branch here."""
        return ()

    def remove_left_over(self, repo: RepoId, branches: Iterable[str]) -> None:
        """Do nothing: there is nothing to remove."""

    def read_file(self, repo: RepoId, commit: str, path: str) -> bytes:
        """Read a file of a commit."""
        place = directory.file_path(self.hub, repo, commit, path)
        try:
            return place.read_bytes()
        except OSError as err:
            raise UploadError(f"{place}: cannot be read ({err.strerror})") from err

    def write_commit(self, repo: RepoId, plan: CommitPlan, options: CommitOptions) -> Written:
        """Write one commit that holds the files of its parent as the plan changes them."""
        if options.private or options.pull_request:
            option = "--private" if options.private else "--create-pr"
            raise UsageError(
                f"{option} means nothing for a folder ({self.url}): its permissions say who may read "
                "and write it"
            )
        files: dict[str, Path | TreeFile] = {
            file.path: file.place for file in (*plan.add, *plan.change)
        }
        keep = frozenset(plan.keep)
        files |= {file.path: file for file in plan.branch.files if file.path in keep}
        try:
            commit = publishing.publish(
                self.hub,
                repo,
                files,
                branch=plan.branch.name,
                parent=plan.branch.commit,
                tags=options.tags,
            )
        except OSError as err:
            place = err.filename or self.hub.root
            raise UploadError(f"{place}: cannot publish there ({err.strerror})") from err
        return Written(commit=commit)


def open_directory_remote(url: str) -> DirectoryRemote:
    """Return the directory hub at a ``file:///path`` URL.

    Raises:
        UsageError: the URL names another host, or no absolute path.
    """
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.netloc not in ("", "localhost") or not path.is_absolute():
        raise UsageError(f"--hub {url}: expected file:///absolute/path")
    return DirectoryRemote(DirectoryHub(path))
