"""What a repository says of itself: its state, its refs, its commits."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.request import Hub, base_url, get_flag, get_parameter, get_repo
from kernel_hub.service.history import Commit, describe
from kernel_spec.wire import format_refs

COMMITS_PER_PAGE = 50


def get_info(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}`` and ``.../revision/{rev}``.

    There is no ``siblings``: huggingface_hub 1.10 cannot read it for a kernel.
    """
    repo = get_repo(request)
    snapshot = hub.catalogue.get_snapshot(repo, get_parameter(request, "revision") or None)
    return JSONResponse(
        {
            "_id": str(repo),
            "id": str(repo),
            "author": repo.owner,
            "sha": snapshot.commit,
            "lastModified": format_time(hub.catalogue.commit_time(snapshot)),
            "private": False,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
        }
    )


def get_refs(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}/refs``."""
    answer = format_refs(hub.catalogue.read_refs(get_repo(request)))
    if get_flag(request, "include_prs"):
        answer["pullRequests"] = []
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


def format_commit(commit: Commit) -> dict[str, Any]:
    """Write a commit as tree entries and commit lists have it."""
    return {"id": commit.id, "title": commit.title, "date": format_time(commit.time)}


def format_time(time: datetime) -> str:
    """Write a time in UTC as the Hub does: ``2026-01-31T12:00:00.000Z``."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"


_AUTHORLESS: dict[str, Any] = {"message": "", "authors": []}
