"""Writes to what a repository is: it is made, and so are its branches and tags."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.bearer import find_token, get_writer
from kernel_hub.api.body import get_text, read_json
from kernel_hub.api.failure import answer_error
from kernel_hub.api.hub import Hub
from kernel_hub.api.url import base_url, get_parameter, get_repo
from kernel_hub.errors import RequestError, TakenError
from kernel_spec.errors import FormatError
from kernel_spec.names import parse_repo_id
from kernel_spec.refs import RefKind

# Where a kernel is found, by what the client takes it for.
PREFIXES = {"kernel": "/kernels", "model": ""}


async def create_repository(hub: Hub, request: Request) -> Response:
    """``POST /api/repos/create``: ``{type, organization, name, visibility?}``.

    An existing one is 409, with its URL: clients that do not mind read it.
    """
    find_token(hub, request)
    table = await read_json(request)
    kind = table.get("type") or "model"
    if not isinstance(kind, str) or kind not in PREFIXES:
        raise RequestError("This hub keeps kernels only: create it with repo_type='kernel'.")
    if table.get("visibility", "public") != "public" or table.get("private"):
        raise RequestError(
            "This hub has no private repositories: who can reach it reads everything."
        )
    owner, name = table.get("organization"), get_text(table, "name")
    if not isinstance(owner, str):
        raise RequestError(f"Whose is it? Name the repository OWNER/{name[:100]}.")
    try:
        repo = parse_repo_id(f"{owner}/{name}")
    except FormatError as err:
        raise RequestError(str(err)) from err
    writing, _ = get_writer(hub, request, repo)
    url = f"{base_url(hub, request)}{PREFIXES[kind]}/{repo}"
    answer = {"url": url, "name": str(repo), "id": str(repo)}
    try:
        await run_in_threadpool(writing.publisher.create_repository, repo)
    except TakenError as err:
        return answer_error(err.status, str(err), more=answer)
    return JSONResponse(answer)


async def create_branch(hub: Hub, request: Request) -> Response:
    """``POST /api/kernels/{id}/branch/{branch}``: ``{startingPoint?}``."""
    repo = get_repo(request)
    writing, _ = get_writer(hub, request, repo)
    table = await read_json(request)
    start = get_text(table, "startingPoint") if table.get("startingPoint") is not None else None
    name = get_parameter(request, "ref")
    await run_in_threadpool(writing.publisher.create_ref, repo, RefKind.BRANCH, name, start)
    return JSONResponse({})


async def create_tag(hub: Hub, request: Request) -> Response:
    """``POST /api/kernels/{id}/tag/{revision}``: ``{tag, message?}``; the message is not kept."""
    repo = get_repo(request)
    writing, _ = get_writer(hub, request, repo)
    name = get_text(await read_json(request), "tag")
    revision = get_parameter(request, "ref")
    await run_in_threadpool(writing.publisher.create_ref, repo, RefKind.TAG, name, revision)
    return JSONResponse({})


def delete_branch(hub: Hub, request: Request) -> Response:
    """``DELETE /api/kernels/{id}/branch/{branch}``."""
    return _delete(hub, request, RefKind.BRANCH)


def delete_tag(hub: Hub, request: Request) -> Response:
    """``DELETE /api/kernels/{id}/tag/{tag}``."""
    return _delete(hub, request, RefKind.TAG)


def _delete(hub: Hub, request: Request, kind: RefKind) -> Response:
    repo = get_repo(request)
    writing, _ = get_writer(hub, request, repo)
    writing.publisher.delete_ref(repo, kind, get_parameter(request, "ref"))
    return JSONResponse({})
