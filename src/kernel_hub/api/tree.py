"""The files of a commit: the tree in pages, and chosen paths."""

from __future__ import annotations

from itertools import islice
from typing import Any, assert_never
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.body import read_form
from kernel_hub.api.hub import Hub
from kernel_hub.api.repository import format_commit
from kernel_hub.api.url import base_url, get_cursor, get_flag, get_parameter, get_repo, parse_flag
from kernel_hub.errors import EntryNotFoundError
from kernel_hub.service.history import last_changes
from kernel_hub.service.snapshot import Entry, Snapshot, TreeDirectory, walk
from kernel_spec.wire import TreeFile, format_tree_directory, format_tree_file

ENTRIES_PER_PAGE = 1000
EXPANDED_PER_PAGE = 50


def get_tree(hub: Hub, request: Request) -> Response:
    """``GET /api/kernels/{id}/tree/{rev}/{path}?recursive&expand&cursor``.

    The next page is asked for by commit, so a branch that moves meanwhile mixes nothing up.
    """
    repo = get_repo(request)
    snapshot = hub.catalogue.get_snapshot(repo, get_parameter(request, "revision"))
    folder = get_parameter(request, "path").strip("/")
    if folder not in snapshot.children:
        raise EntryNotFoundError(repo, snapshot.commit, folder, kind="folder")
    recursive, expand = get_flag(request, "recursive"), get_flag(request, "expand")
    size = EXPANDED_PER_PAGE if expand else ENTRIES_PER_PAGE
    start = get_cursor(request)
    entries = walk(snapshot, folder) if recursive else iter(snapshot.children[folder])
    found = list(islice(entries, start, start + size + 1))
    response = JSONResponse(_format_entries(hub, snapshot, found[:size], expand=expand))
    if len(found) > size:
        place = f"{snapshot.commit}/{quote(folder)}" if folder else snapshot.commit
        query = f"recursive={recursive}&expand={expand}&cursor={start + size}".lower()
        url = f"{base_url(hub, request)}/api/kernels/{repo}/tree/{place}?{query}"
        response.headers["Link"] = f'<{url}>; rel="next"'
    return response


async def get_paths(hub: Hub, request: Request) -> Response:
    """``POST /api/kernels/{id}/paths-info/{rev}``: the entries of ``paths`` that there are."""
    form = await read_form(request)
    expand = parse_flag("expand", form.get("expand", ["false"])[-1])
    return await run_in_threadpool(_answer_paths, hub, request, form.get("paths", []), expand)


def _answer_paths(hub: Hub, request: Request, paths: list[str], expand: bool) -> Response:
    snapshot = hub.catalogue.get_snapshot(get_repo(request), get_parameter(request, "revision"))
    # dict.fromkeys: each path once, however often it is asked for.
    wanted = [path.strip("/") for path in dict.fromkeys(paths)]
    found = [snapshot.entries[path] for path in wanted if path in snapshot.entries]
    return JSONResponse(_format_entries(hub, snapshot, found, expand=expand))


def _format_entries(
    hub: Hub, snapshot: Snapshot, entries: list[Entry], *, expand: bool
) -> list[dict[str, Any]]:
    answers = [_format_entry(entry) for entry in entries]
    if expand:
        changes = last_changes(hub.catalogue, snapshot, entries)
        for answer in answers:
            answer["lastCommit"] = format_commit(changes[answer["path"]])
    return answers


def _format_entry(entry: Entry) -> dict[str, Any]:
    match entry:
        case TreeFile():
            return format_tree_file(entry)
        case TreeDirectory():
            return format_tree_directory(entry.path, entry.oid)
        case _:
            assert_never(entry)
