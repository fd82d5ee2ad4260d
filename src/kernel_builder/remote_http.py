"""Publishing to a hub over HTTP, by the Hub's own client."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kernel_builder import upload_scratch
from kernel_builder.commit_plan import (
    CommitOptions,
    CommitPlan,
    RemoteBranch,
    Written,
)
from kernel_builder.errors import UploadError
from kernel_spec.errors import ConflictError, KernelError
from kernel_spec.names import RepoId
from kernel_spec.refs import DEFAULT_BRANCH
from kernel_spec.wire import TreeFile
from kernels.hub_address import hide_credentials, hide_secrets

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi
    from huggingface_hub.errors import HfHubHTTPError

_KIND = "kernel"
# The client adds a line that names a page about the status code.
_MORE = "For more information check"


class HttpRemote:
    """A hub that is written to over HTTP.

    The user's Hugging Face token is sent only where ``send_token`` says so: another hub must not
    learn it. The ``credentials`` of its URL go to it, and into no message.
    """

    is_directory = False

    def __init__(self, url: str, *, send_token: bool, notes: Path, credentials: str = "") -> None:
        self.url = url
        self._endpoint = url.replace("://", f"://{credentials}@", 1) if credentials else url
        self._send_token = send_token
        self._notes = notes

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        from kernels.http_session import open_session
        from kernels.hub_token import read_token

        # What it would make of a proxy, certificates or a token that it cannot use names no variable.
        open_session()
        token = read_token(self.url) if self._send_token else False
        return HfApi(endpoint=self._endpoint, token=token)

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
        files = () if commit is None else self._read_tree(repo, commit)
        return RemoteBranch(name=name, commit=commit, files=files)

    def read_new_branch(self, repo: RepoId, name: str, branches: Mapping[str, str]) -> RemoteBranch:
        """Read what a new branch begins with: that which ``main`` holds."""
        start = branches.get(DEFAULT_BRANCH)
        files = () if start is None else self._read_tree(repo, start)
        return RemoteBranch(name=name, commit=None, files=files, start=start)

    def _read_tree(self, repo: RepoId, commit: str) -> tuple[TreeFile, ...]:
        with self._spoken(repo):
            entries = self._api().list_repo_tree(
                str(repo), recursive=True, revision=commit, repo_type=_KIND
            )
            return tuple(_tree_file(each) for each in _files(entries))

    def read_file(self, repo: RepoId, commit: str, path: str) -> bytes:
        """Read a file of a commit."""
        with self._spoken(repo), tempfile.TemporaryDirectory(prefix="hub-") as temporary:
            place = self._api().hf_hub_download(
                str(repo), path, repo_type=_KIND, revision=commit, local_dir=temporary
            )
            return Path(place).read_bytes()

    def write_commit(self, repo: RepoId, plan: CommitPlan, options: CommitOptions) -> Written:
        """Write one commit; the repository and the branch are made where they are not there."""
        with self._spoken(repo, writes=True):
            if options.private and (plan.branch.commit or plan.branch.start):
                self._see_that_it_is_private(repo)
            if options.pull_request:
                return self._ask(repo, plan, options)
            if plan.branch.commit is None:
                commit = self._found_branch(repo, plan, options)
            elif plan.is_empty:
                commit = plan.branch.commit
            else:
                commit = self._commit(
                    repo, plan, plan.branch.name, plan.branch.commit, options.message
                ).oid
        done = f"{repo} {plan.branch.name} is at {commit} now"
        with self._spoken(repo, writes=True, done=done):
            for tag in options.tags:
                self._api().create_tag(str(repo), tag=tag, revision=commit, repo_type=_KIND)
        return Written(commit=commit)

    def _see_that_it_is_private(self, repo: RepoId) -> None:
        """Refuse to publish to everybody what was meant for few: a repository that exists stays as it is."""
        if not self._api().repo_info(str(repo), repo_type=_KIND).private:
            raise UploadError(
                f"--private: {repo} is at {self.url} already, and everybody can read it; make it "
                "private there, or choose another --repo-id. Nothing was published"
            )

    def _found_branch(self, repo: RepoId, plan: CommitPlan, options: CommitOptions) -> str:
        """Make a branch that holds the commit from its first moment.

        Hubs can only fork a branch and then commit to it. Loaders would see the fork, an empty
        version; so the commit is made on a branch of another name, and the real one forked from that.
        """
        api, name = self._api(), str(repo)
        start = plan.branch.start
        if start is None:
            api.create_repo(name, repo_type=_KIND, exist_ok=True, private=options.private or None)
            branches, _ = self.read_refs(repo)
            start = branches.get(DEFAULT_BRANCH)
            if plan.branch.name in branches:
                if plan.branch.name != DEFAULT_BRANCH:
                    raise ConflictError(_somebody(repo, self.url))
                return self._commit(repo, plan, DEFAULT_BRANCH, start, options.message).oid
        scratch = upload_scratch.name_scratch(plan.branch.name)
        with upload_scratch.holding(self._notes, self.url, repo, scratch):
            api.create_branch(name, branch=scratch, revision=start, repo_type=_KIND)
            try:
                commit = self._commit(repo, plan, scratch, start, options.message).oid
                api.create_branch(name, branch=plan.branch.name, revision=commit, repo_type=_KIND)
            finally:
                self._delete_branch(name, scratch)
        return commit

    def find_left_over(self, repo: RepoId, branches: Iterable[str]) -> tuple[str, ...]:
        """Return the branches of uploads that were killed: here at any time, or elsewhere long ago."""
        return tuple(
            name
            for name in branches
            if upload_scratch.is_left_over(self._notes, self.url, repo, name)
        )

    def remove_left_over(self, repo: RepoId, branches: Iterable[str]) -> None:
        """Delete such branches, as far as the hub lets us."""
        for branch in branches:
            self._delete_branch(str(repo), branch)
            upload_scratch.forget(self._notes, self.url, repo, branch)

    def _delete_branch(self, name: str, branch: str) -> None:
        from huggingface_hub import errors

        # It means nothing to loaders, so an error here is none of the upload.
        with suppress(errors.HfHubHTTPError, OSError, _transport_error()):
            self._api().delete_branch(name, branch=branch, repo_type=_KIND)

    def _ask(self, repo: RepoId, plan: CommitPlan, options: CommitOptions) -> Written:
        """Open a pull request with the commit."""
        if plan.branch.commit is None:
            raise UploadError(
                f"{repo} has no branch {plan.branch.name} to ask for a change of; its owner makes one"
            )
        made = self._commit(
            repo, plan, plan.branch.name, plan.branch.commit, options.message, pull_request=True
        )
        place = None if made.pr_url is None else hide_credentials(made.pr_url)
        return Written(commit=made.oid, pull_request=place)

    def _commit(
        self,
        repo: RepoId,
        plan: CommitPlan,
        branch: str,
        parent: str | None,
        message: str,
        *,
        pull_request: bool = False,
    ) -> CommitInfo:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        operations: list[Any] = [
            CommitOperationAdd(path_in_repo=file.path, path_or_fileobj=file.place)
            for file in (*plan.add, *plan.change)
        ]
        operations += [CommitOperationDelete(path_in_repo=path) for path in plan.delete]
        with self._fitting_transfer(repo, branch):
            return self._api().create_commit(
                str(repo),
                operations,
                commit_message=message,
                repo_type=_KIND,
                revision=branch,
                parent_commit=parent,
                create_pr=pull_request or None,
            )

    @contextmanager
    def _fitting_transfer(self, repo: RepoId, branch: str) -> Iterator[None]:
        """Send large files without Xet where the hub has none: the client does not find out itself."""
        from huggingface_hub import constants, get_session

        api = self._api()
        url = f"{self._endpoint}/api/{_KIND}s/{repo}/xet-write-token/{quote(branch, safe='')}"
        headers = {"Authorization": f"Bearer {api.token}"} if api.token else {}
        answer = get_session().get(url, headers=headers)
        before = constants.HF_HUB_DISABLE_XET
        constants.HF_HUB_DISABLE_XET = before or answer.status_code in (404, 501)
        try:
            yield
        finally:
            constants.HF_HUB_DISABLE_XET = before

    @contextmanager
    def _spoken(
        self, repo: RepoId, *, writes: bool = False, done: str | None = None
    ) -> Iterator[None]:
        """Turn the client's errors into ours, saying what to do, and what was done before."""
        from huggingface_hub.errors import HfHubHTTPError

        before = f"{done}, but then: " if done else ""
        try:
            yield
        except KernelError:
            raise
        except HfHubHTTPError as err:
            status = getattr(err.response, "status_code", None)
            if status in (409, 412):
                raise ConflictError(before + _somebody(repo, self.url)) from err
            said = self._refusal(status, err) if status in (401, 403) else _said(err)
            raise UploadError(f"{before}{repo} at {self.url}: {said}") from err
        except (ValueError, LookupError, TypeError, AttributeError) as err:
            if "Invalid repo type" in str(err):
                raise UploadError(
                    "this huggingface_hub is too old to write to repositories of kernels; "
                    "run: pip install 'huggingface_hub>=2'"
                ) from err
            raise UploadError(
                f"{self.url}: it does not answer as a hub does "
                f"({type(err).__name__}: {hide_secrets(str(err))}); "
                "see that --hub names the root of a hub"
            ) from err
        except (OSError, RuntimeError, _transport_error()) as err:
            # The client wraps what goes wrong with a large file in a RuntimeError.
            goes_on = "; nothing more was published, so the same command goes on from there"
            raise UploadError(
                f"{before}{self.url}: cannot be reached ({hide_secrets(str(err.__cause__ or err))})"
                + (goes_on if writes else "")
            ) from err

    def _refusal(self, status: int, error: HfHubHTTPError) -> str:
        if not self._send_token:
            return (
                f"the hub refuses ({status}), and no token was sent: the Hugging Face token goes to "
                f"HF_ENDPOINT alone; where this hub is meant to have it, set HF_ENDPOINT={self.url}"
            )
        if status == 401:
            from huggingface_hub import get_token

            if get_token():
                return (
                    "the hub does not know the token that was sent (401): it is that of HF_TOKEN, else "
                    "of `hf auth login`; it may be of another hub, mistyped or taken back"
                )
            return "the hub asks who you are (401); log in with `hf auth login` or set HF_TOKEN"
        words = f": {error.server_message}" if error.server_message else ""
        return (
            f"you may not write there (403{words}); ask its owner, choose another --repo-id, or propose "
            "it with --create-pr where the hub lets you"
        )


def _said(error: HfHubHTTPError) -> str:
    """Return the hub's own words where it has some, else the client's."""
    if error.server_message:
        return f"{error.server_message} ({error.response.status_code})"
    lines = hide_secrets(str(error)).splitlines()
    return " ".join(each for each in lines if each and _MORE not in each)


def _transport_error() -> type[Exception]:
    """Return what the client's transport raises: it is httpx or httpx2, by the client's version."""
    from huggingface_hub import errors

    kind: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    return kind


def _somebody(repo: RepoId, url: str) -> str:
    return f"{repo} at {url}: somebody else has published; look at it and upload again"


def _files(entries: Any) -> Iterator[Any]:
    from huggingface_hub.hf_api import RepoFile

    return (entry for entry in entries if isinstance(entry, RepoFile))


def _tree_file(entry: Any) -> TreeFile:
    sha256 = entry.lfs.sha256 if entry.lfs is not None else None
    return TreeFile(path=entry.path, size=entry.size, oid=entry.blob_id, sha256=sha256)
