"""``POST /api/kernels/{id}/commit/{branch}``: many operations, one commit."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import anyio
from anyio.lowlevel import RunVar
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.bearer import get_proposer, get_writer, refuse_others
from kernel_hub.api.body import write_body
from kernel_hub.api.discussions import format_url
from kernel_hub.api.hub import Hub, Writing
from kernel_hub.api.url import base_url, get_flag, get_parameter, get_repo
from kernel_hub.errors import RequestError
from kernel_hub.service.operations import BODY_LIMIT, read_commit
from kernel_hub.store.proposals import Proposal, Status
from kernel_spec.directory import PROPOSAL
from kernel_spec.names import RepoId

# Commits to one repository wait for each other: so many may do so, and hold a line each in memory,
# without keeping readers from the threads that serve them.
AT_ONCE = 4
# A limiter belongs to the event loop that it was made in.
_turns: RunVar[anyio.CapacityLimiter] = RunVar("_turns")


async def create_commit(hub: Hub, request: Request) -> Response:
    """Take the whole body to disk, then make the commit in one go; with ``create_pr`` as a proposal.

    A client that leaves before the end of its body has changed nothing.
    """
    repo, revision = get_repo(request), get_parameter(request, "revision")
    as_proposal = get_flag(request, "create_pr")
    writing, author = await run_in_threadpool(
        _authorize, hub, request, repo, revision, as_proposal=as_proposal
    )
    folder = await run_in_threadpool(writing.publisher.uploads.make_commit_folder, repo)
    try:
        with (folder / "body").open("wb") as stream:
            await write_body(request, stream.write, limit=BODY_LIMIT)
        work = partial(
            _commit, hub, writing, repo, revision, folder, author=author if as_proposal else None
        )
        commit, proposal = await anyio.to_thread.run_sync(work, limiter=_get_turns())
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)
    url = f"{base_url(hub, request)}/kernels/{repo}/commit/{commit}"
    answer = {"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""}
    if proposal is not None:
        answer["pullRequestUrl"] = format_url(hub, request, repo, proposal)
    return JSONResponse(answer)


def _authorize(
    hub: Hub, request: Request, repo: RepoId, revision: str, *, as_proposal: bool
) -> tuple[Writing, str]:
    """Refuse a commit that cannot be made before its body comes; return how to write, and the author."""
    proposed = PROPOSAL.fullmatch(revision)
    if as_proposal or proposed:
        writing, token = get_proposer(hub, request, repo)
    else:
        writing, token = get_writer(hub, request, repo)
    if proposed and not as_proposal:
        found = writing.proposing.get(repo, int(proposed[1]))
        if found.status is not Status.OPEN:
            raise RequestError(f"{repo}: {found.ref} is {found.status}.")
        refuse_others(token, repo, found)
    writing.publisher.get_head(repo, revision)
    return writing, token.name


def _get_turns() -> anyio.CapacityLimiter:
    try:
        return _turns.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(AT_ONCE)
        _turns.set(limiter)
        return limiter


def _commit(
    hub: Hub, writing: Writing, repo: RepoId, revision: str, folder: Path, *, author: str | None
) -> tuple[str, Proposal | None]:
    # Beside "body" lie files named by the numbers of its lines, and by hashes.
    with (folder / "body").open("rb") as body:
        wanted = read_commit(body, folder, max_file_size=hub.settings.max_file_size)
    if author is None:
        return writing.publisher.commit(repo, revision, wanted, folder), None
    made = writing.proposing.propose(repo, revision, wanted, folder, author=author)
    return made.commit, made
