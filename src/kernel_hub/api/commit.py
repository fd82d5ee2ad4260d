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

from kernel_hub.api.request import (
    Hub,
    Writing,
    base_url,
    get_flag,
    get_parameter,
    get_repo,
    get_writer,
    write_body,
)
from kernel_hub.api.upload import NO_PULL_REQUESTS
from kernel_hub.errors import ReadOnlyError
from kernel_hub.service.operations import BODY_LIMIT, read_commit
from kernel_spec.names import RepoId

# Commits to one repository wait for each other: so many may do so, and hold a line each in memory,
# without keeping readers from the threads that serve them.
AT_ONCE = 4
# A limiter belongs to the event loop that it was made in.
_turns: RunVar[anyio.CapacityLimiter] = RunVar("_turns")


async def create_commit(hub: Hub, request: Request) -> Response:
    """Take the whole body to disk, then make the commit in one go.

    A client that leaves before the end of its body has changed nothing.
    """
    repo, revision = get_repo(request), get_parameter(request, "revision")
    writing = get_writer(hub, request, repo)
    if get_flag(request, "create_pr"):
        raise ReadOnlyError(NO_PULL_REQUESTS)
    # Before the body: what has no branch needs no bytes.
    await run_in_threadpool(writing.publisher.get_head, repo, revision)
    folder = await run_in_threadpool(writing.publisher.uploads.make_commit_folder, repo)
    try:
        with (folder / "body").open("wb") as stream:
            await write_body(request, stream.write, limit=BODY_LIMIT)
        work = partial(_commit, hub, writing, repo, revision, folder)
        commit = await anyio.to_thread.run_sync(work, limiter=_get_turns())
    finally:
        with anyio.CancelScope(shield=True):
            await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)
    url = f"{base_url(hub, request)}/kernels/{repo}/commit/{commit}"
    return JSONResponse({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})


def _get_turns() -> anyio.CapacityLimiter:
    try:
        return _turns.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(AT_ONCE)
        _turns.set(limiter)
        return limiter


def _commit(hub: Hub, writing: Writing, repo: RepoId, revision: str, folder: Path) -> str:
    # Numbers of lines, hashes and "body" do not meet as names.
    with (folder / "body").open("rb") as body:
        wanted = read_commit(body, folder, max_file_size=hub.settings.max_file_size)
    return writing.publisher.commit(repo, revision, wanted, folder)
