"""Pull requests, as clients call proposals: asked for, listed, taken over, closed. There is no talk about them."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.bearer import get_proposer, get_writer, refuse_others
from kernel_hub.api.body import get_text, read_json
from kernel_hub.api.hub import Hub
from kernel_hub.api.repository import format_time
from kernel_hub.api.url import base_url, get_parameter, get_repo, parse_number
from kernel_hub.errors import ReadOnlyError, RequestError
from kernel_hub.store.proposals import Proposal, Status
from kernel_spec.names import RepoId
from kernel_spec.refs import DEFAULT_BRANCH

PER_PAGE = 50
# What may be listed, as clients ask for it.
LISTED = {
    "all": frozenset(Status),
    "open": frozenset({Status.OPEN}),
    "closed": frozenset({Status.CLOSED, Status.MERGED}),
}


def list_discussions(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}/discussions?p&type&status&author``, fifty to a page, the newest first."""
    repo, asked = get_repo(request), request.query_params
    wanted = () if asked.get("type") == "discussion" else hub.get_writing().proposing.list(repo)
    status, author = asked.get("status", "all"), asked.get("author")
    if (listed := LISTED.get(status)) is None:
        raise RequestError(f"status is {status[:50]!r}, expected {', '.join(LISTED)}.")
    found = [each for each in wanted if each.status in listed and author in (None, each.author)]
    text = asked.get("p", "0")
    if (page := parse_number(text)) is None:
        raise RequestError(f"p is {text[:50]!r}, expected the number of a page.")
    start = page * PER_PAGE
    shown = [_format(repo, each) for each in found[start : start + PER_PAGE]]
    return JSONResponse({"discussions": shown, "count": len(found), "start": start})


async def create_discussion(hub: Hub, request: Request) -> Response:
    """``POST /api/kernels/{id}/discussions``: ``{title, description, pullRequest}``, for ``main``.

    Clients commit to ``refs/pr/{num}`` afterwards.
    """
    repo = get_repo(request)
    writing, token = get_proposer(hub, request, repo)
    table = await read_json(request)
    if table.get("pullRequest") is not True:
        raise ReadOnlyError("This hub has pull requests, and no other discussions.")
    title, text = get_text(table, "title"), table.get("description")
    made = await run_in_threadpool(
        writing.proposing.open,
        repo,
        DEFAULT_BRANCH,
        title=title,
        description=text if isinstance(text, str) else "",
        author=token.name,
    )
    url = format_url(hub, request, repo, made)
    return JSONResponse({"num": made.number, "pullRequest": True, "url": url})


def get_discussion(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}/discussions/{number}``; the difference itself is not written out."""
    repo = get_repo(request)
    proposing = hub.get_writing().proposing
    found = proposing.get(repo, _get_number(request))
    conflict = proposing.find_conflict(repo, found) if found.status is Status.OPEN else None
    changes = {"base": found.branch}
    if found.status is Status.MERGED:
        changes["mergeCommitId"] = found.commit
    more = {
        "changes": changes,
        # True: there is a conflict, of which no files can be named.
        "filesWithConflicts": [] if conflict is None else True,
        "events": _format_events(found),
    }
    return JSONResponse(_format(repo, found) | more)


async def merge(hub: Hub, request: Request) -> Response:
    """``POST /api/kernels/{id}/discussions/{number}/merge``; a comment is not kept."""
    repo, number = get_repo(request), _get_number(request)
    writing, _ = get_writer(hub, request, repo)
    await read_json(request)
    merged = await run_in_threadpool(writing.proposing.merge, repo, number)
    return JSONResponse({"newStatus": _format_status(merged)})


async def change_status(hub: Hub, request: Request) -> Response:
    """``POST /api/kernels/{id}/discussions/{number}/status``: ``{status}``, ``open`` or ``closed``.

    Who may write closes any, who may propose their own.
    """
    repo, number = get_repo(request), _get_number(request)
    writing, token = get_proposer(hub, request, repo)
    status = get_text(await read_json(request), "status")
    if status not in (Status.OPEN, Status.CLOSED):
        raise RequestError("status: expected open or closed.")
    refuse_others(token, repo, await run_in_threadpool(writing.proposing.get, repo, number))
    changed = await run_in_threadpool(
        writing.proposing.set_open, repo, number, is_open=status == Status.OPEN
    )
    return JSONResponse({"newStatus": _format_status(changed)})


def format_url(hub: Hub, request: Request, repo: RepoId, proposal: Proposal) -> str:
    """Write the URL by which clients know the number of a proposal."""
    return f"{base_url(hub, request)}/kernels/{repo}/discussions/{proposal.number}"


def _get_number(request: Request) -> int:
    text = get_parameter(request, "number")
    if (number := parse_number(text)) is None:
        raise RequestError(f"{text[:50]!r} is not the number of a pull request.")
    return number


def _format(repo: RepoId, proposal: Proposal) -> dict[str, Any]:
    return {
        "num": proposal.number,
        "title": proposal.title,
        "author": {"name": proposal.author},
        "createdAt": format_time(proposal.created),
        "status": proposal.status,
        "repo": {"name": str(repo), "type": "kernel"},
        "isPullRequest": True,
    }


def _format_events(proposal: Proposal) -> list[dict[str, Any]]:
    time = format_time(proposal.created)
    latest = {"raw": proposal.description, "html": "", "updatedAt": time}
    about = {"edited": False, "hidden": False, "latest": latest, "history": []}
    events = [_format_event(proposal, "comment", about)] if proposal.description else []
    if proposal.commit != proposal.base:
        made = {"subject": proposal.title, "oid": proposal.commit}
        events.append(_format_event(proposal, "commit", made))
    return events


def _format_status(proposal: Proposal) -> dict[str, Any]:
    return _format_event(proposal, "status-change", {"status": proposal.status})


def _format_event(proposal: Proposal, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"{proposal.number:06x}",
        "type": kind,
        "createdAt": format_time(proposal.created),
        "author": {"name": proposal.author},
        "data": data,
    }
