"""What a repository says of itself: its state, its refs, its commits."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.hub import Hub
from kernel_hub.api.url import base_url, get_flag, get_limit, get_parameter, get_repo
from kernel_hub.errors import RequestError
from kernel_hub.service.catalogue import Head
from kernel_hub.service.history import Commit, describe
from kernel_spec.wire import format_refs

COMMITS_PER_PAGE = 50
REPOSITORIES_PER_PAGE = 1000
LIST_BY = {"author", "search", "limit", "cursor"}
# They ask for more about each; what this hub knows is always there.
LIST_DETAILS = {"full", "config", "cardData", "expand"}


def get_info(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}`` and ``.../revision/{rev}``.

    There is no ``siblings``: huggingface_hub 1.10 cannot read it for a kernel.
    """
    repo = get_repo(request)
    snapshot = hub.catalogue.get_snapshot(repo, get_parameter(request, "revision") or None)
    head = Head(repo, snapshot.commit, hub.catalogue.commit_time(snapshot))
    return JSONResponse(format_head(head))


def list_repositories(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels?author&search&limit&cursor``: by id, up to a thousand to a page.

    The next page begins after the last id of this one, so that one which is made or goes meanwhile
    moves no other. A filter that this hub does not know is refused: its answer would be wrong.
    """
    asked = request.query_params
    if unknown := sorted(asked.keys() - LIST_BY - LIST_DETAILS):
        raise RequestError(
            f"This hub lists kernels by {', '.join(sorted(LIST_BY))}, not by {', '.join(unknown)[:200]}."
        )
    limit = get_limit(request, most=REPOSITORIES_PER_PAGE)
    query = {key: asked[key] for key in ("author", "search") if asked.get(key)}
    heads = hub.catalogue.list_heads(
        owner=query.get("author"), search=query.get("search", ""), after=asked.get("cursor", "")
    )
    found = list(islice(heads, limit + 1))
    response = JSONResponse([format_head(head) for head in found[:limit]])
    if len(found) > limit:
        query |= {"limit": str(limit), "cursor": str(found[limit - 1].repo)}
        url = f"{base_url(hub, request)}/api/kernels?{urlencode(query)}"
        response.headers["Link"] = f'<{url}>; rel="next"'
    return response


def get_refs(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}/refs``."""
    repo = get_repo(request)
    answer = format_refs(hub.catalogue.read_refs(repo))
    if get_flag(request, "include_prs"):
        found = () if hub.writing is None else hub.writing.proposing.list(repo)
        answer["pullRequests"] = [
            {"name": each.ref, "ref": each.ref, "targetCommit": each.commit} for each in found
        ]
    return JSONResponse(answer)


def get_commits(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}/commits/{rev}``, fifty to a page, the newest first."""
    repo = get_repo(request)
    snapshot = hub.catalogue.get_snapshot(repo, get_parameter(request, "revision"))
    found = list(islice(hub.catalogue.history(snapshot), COMMITS_PER_PAGE + 1))
    commits = [describe(hub.catalogue, past) for past in found[:COMMITS_PER_PAGE]]
    response = JSONResponse([format_commit(commit) | _AUTHORLESS for commit in commits])
    if len(found) > COMMITS_PER_PAGE:
        url = f"{base_url(hub, request)}/api/kernels/{repo}/commits/{found[-1].commit}"
        response.headers["Link"] = f'<{url}>; rel="next"'
    return response


def format_head(head: Head) -> dict[str, Any]:
    """Write what a repository says of itself."""
    return {
        "_id": str(head.repo),
        "id": str(head.repo),
        "author": head.repo.owner,
        "sha": head.commit,
        "lastModified": None if head.time is None else format_time(head.time),
        "private": False,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
    }


def format_commit(commit: Commit) -> dict[str, Any]:
    """Write a commit as tree entries and commit lists have it."""
    return {"id": commit.id, "title": commit.title, "date": format_time(commit.time)}


def format_time(time: datetime) -> str:
    """Write a time in UTC as the Hub does: ``2026-01-31T12:00:00.000Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"


_AUTHORLESS: dict[str, Any] = {"message": "", "authors": []}
