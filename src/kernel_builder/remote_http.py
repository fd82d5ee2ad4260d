"""Publishing to a hub over HTTP, by the Hub's own client."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_builder.commit_plan import CommitPlan, RemoteBranch
from kernel_builder.errors import UploadError
from kernel_spec.errors import ConflictError
from kernel_spec.names import RepoId
from kernel_spec.wire import TreeFile

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_KIND = "kernel"
# The client adds a line that names a page about the status code.
_MORE = "For more information check"


class HttpRemote:
    """A hub that is written to over HTTP.

    The user's Hugging Face token is sent only where ``send_token`` says so: another hub must not
    learn it.
    """

    is_directory = False

    def __init__(self, url: str, *, send_token: bool) -> None:
        self.url = url
        self._send_token = send_token

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.url, token=None if self._send_token else False)

    def read_refs(self, repo: RepoId) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Read the commits of branches and of tags, by name."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._spoken(repo):
            try:
                refs = self._api().list_repo_refs(str(repo), repo_type=_KIND)
            except RepositoryNotFoundError:
                return {}, {}
            return (
                {ref.name: ref.target_commit for ref in refs.branches},
                {ref.name: ref.target_commit for ref in refs.tags},
            )

    def read_branch(self, repo: RepoId, name: str, commit: str | None) -> RemoteBranch:
        """Read what a branch holds."""
        if commit is None:
            return RemoteBranch(name=name, commit=None)
        with self._spoken(repo):
            entries = self._api().list_repo_tree(
                str(repo), recursive=True, revision=commit, repo_type=_KIND
            )
            return RemoteBranch(
                name=name, commit=commit, files=tuple(_tree_file(each) for each in _files(entries))
            )

    def read_file(self, repo: RepoId, commit: str, path: str) -> bytes:
        """Read a file of a commit."""
        with self._spoken(repo), tempfile.TemporaryDirectory(prefix="hub-") as temporary:
            place = self._api().hf_hub_download(
                str(repo), path, repo_type=_KIND, revision=commit, local_dir=temporary
            )
            return Path(place).read_bytes()

    def write_commit(
        self, repo: RepoId, plan: CommitPlan, *, message: str, tags: tuple[str, ...]
    ) -> str:
        """Write one commit; the repository and the branch are made where they are not there."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        api, name, branch = self._api(), str(repo), plan.branch.name
        with self._spoken(repo):
            parent = plan.branch.commit
            if parent is None:
                api.create_repo(name, repo_type=_KIND, exist_ok=True)
                if branch != "main":
                    # It was not there a moment ago; if it is now, somebody else publishes too.
                    api.create_branch(name, branch=branch, repo_type=_KIND)
            commit = parent
            if not plan.is_empty:
                operations: list[Any] = [
                    CommitOperationAdd(path_in_repo=file.path, path_or_fileobj=file.place)
                    for file in (*plan.add, *plan.change)
                ]
                operations += [CommitOperationDelete(path_in_repo=path) for path in plan.delete]
                commit = api.create_commit(
                    name,
                    operations,
                    commit_message=message,
                    repo_type=_KIND,
                    revision=branch,
                    parent_commit=parent,
                ).oid
            for tag in tags:
                api.create_tag(name, tag=tag, revision=commit, repo_type=_KIND)
            assert commit is not None
            return commit

    @contextmanager
    def _spoken(self, repo: RepoId) -> Iterator[None]:
        """Turn the client's errors into ours, saying what to do."""
        # The client's transport is httpx or httpx2, by its version; it names the error either way.
        from huggingface_hub import errors
        from huggingface_hub.errors import HfHubHTTPError

        unreachable: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]

        try:
            yield
        except HfHubHTTPError as err:
            status = getattr(err.response, "status_code", None)
            if status in (409, 412):
                raise ConflictError(
                    f"{repo} at {self.url}: somebody else has published; look at it and upload again"
                ) from err
            if status in (401, 403):
                raise UploadError(f"{repo} at {self.url}: {self._refusal(status)}") from err
            said = " ".join(line for line in str(err).splitlines() if line and _MORE not in line)
            raise UploadError(f"{repo} at {self.url}: {said}") from err
        except (ValueError, LookupError, TypeError, AttributeError) as err:
            raise UploadError(
                f"{self.url}: it does not answer as a hub does ({type(err).__name__}: {err}); "
                "see that --hub names the root of a hub"
            ) from err
        except (OSError, unreachable) as err:
            raise UploadError(
                f"{self.url}: cannot be reached ({err}); nothing more was published, so the same "
                "command goes on from there"
            ) from err

    def _refusal(self, status: int) -> str:
        if not self._send_token:
            return (
                f"the hub refuses ({status}), and no token was sent: the Hugging Face token goes to "
                f"HF_ENDPOINT alone; where this hub is meant to have it, set HF_ENDPOINT={self.url}"
            )
        if status == 401:
            return "the hub does not know you (401); log in with `hf auth login` or set HF_TOKEN"
        return "you may not write there (403); ask its owner, or choose another --repo-id"


def _files(entries: Any) -> Iterator[Any]:
    from huggingface_hub.hf_api import RepoFile

    return (entry for entry in entries if isinstance(entry, RepoFile))


def _tree_file(entry: Any) -> TreeFile:
    sha256 = entry.lfs.sha256 if entry.lfs is not None else None
    return TreeFile(path=entry.path, size=entry.size, oid=entry.blob_id, sha256=sha256)
