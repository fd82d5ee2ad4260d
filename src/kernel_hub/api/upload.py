"""Bytes that come before their commit: which way they take, and large files (Git LFS, basic transfer).

Clients send no token with the bytes themselves, so the URL that they send them to is signed: for
this repository, hash and size, for an hour.
"""

from __future__ import annotations

import time
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.bearer import get_proposer
from kernel_hub.api.body import get_text, read_json, write_body
from kernel_hub.api.hub import Hub, Writing
from kernel_hub.api.url import base_url, get_parameter, get_repo
from kernel_hub.errors import ForbiddenError, ReadOnlyError, RequestError, RequestTooLargeError
from kernel_hub.service.operations import INLINE_LIMIT
from kernel_hub.service.snapshot import Snapshot
from kernel_spec.names import SHA256, RepoId

FILES_LIMIT = 1000
URL_SECONDS = 3600
LFS_JSON = "application/vnd.git-lfs+json"

# A topic and a text; huggingface_hub logs it once.
NO_XET = (
    f"No Xet; This hub has no Xet storage: if files above {INLINE_LIMIT // 1024**2} MiB cannot be "
    "uploaded, set HF_HUB_DISABLE_XET=1."
)


async def validate_card(hub: Hub, request: Request) -> Response:
    """``POST /api/validate-yaml``: asked before a commit of ``README.md``; this hub asks nothing of it."""
    hub.get_writing()
    await read_json(request)
    return JSONResponse({"errors": [], "warnings": []})


async def preupload(hub: Hub, request: Request) -> Response:
    """``POST /api/kernels/{id}/preupload/{rev}``: which way each file comes, and what is there now.

    Up to 10 MiB a file comes inside the commit, whatever it holds: clients with the package hf-xet
    cannot send it otherwise to a hub without Xet.
    """
    repo = get_repo(request)
    get_proposer(hub, request, repo)
    files = (await read_json(request)).get("files")
    if not isinstance(files, list) or len(files) > FILES_LIMIT:
        raise RequestError(f"files: expected a list of at most {FILES_LIMIT}.")
    snapshot = await run_in_threadpool(
        hub.catalogue.get_snapshot, repo, get_parameter(request, "revision")
    )
    answers = [_choose_way(hub, snapshot, file) for file in files]
    response = JSONResponse({"files": answers})
    if any(answer["uploadMode"] == "lfs" for answer in answers):
        # The package hf-xet shows nothing of an error but its status, so it is said before.
        response.headers["X-HF-Warning"] = NO_XET
    return response


def _choose_way(hub: Hub, snapshot: Snapshot, file: Any) -> dict[str, Any]:
    size = file.get("size") if isinstance(file, dict) else None
    if type(size) is not int or size < 0:
        raise RequestError("files: expected objects with a path and a size.")
    path = get_text(file, "path")
    if size > hub.settings.max_file_size:
        raise RequestTooLargeError(_too_large(hub, path))
    is_inline = size <= INLINE_LIMIT
    held = snapshot.stored.get(path)
    answer: dict[str, Any] = {
        "path": path,
        "uploadMode": "regular" if is_inline else "lfs",
        "shouldIgnore": False,
    }
    if held is not None:
        answer["oid"] = held.oid if is_inline else held.sha256
    return answer


def _too_large(hub: Hub, what: str) -> str:
    return f"{what[:200]}: this hub takes files of at most {hub.settings.max_file_size} bytes."


async def batch(hub: Hub, request: Request) -> Response:
    """``POST /kernels/{id}.git/info/lfs/objects/batch``: where large files go; none, if they are here."""
    repo = get_repo(request)
    writing, _ = get_proposer(hub, request, repo)
    table = await read_json(request)
    objects = table.get("objects")
    if table.get("operation") != "upload" or table.get("hash_algo", "sha256") != "sha256":
        raise ReadOnlyError(
            "This hub does uploads of sha256 objects only; files are read by resolve."
        )
    if not isinstance(objects, list) or len(objects) > FILES_LIMIT:
        raise RequestError(f"objects: expected a list of at most {FILES_LIMIT}.")
    wanted = [_read_object(entry) for entry in objects]
    writing.publisher.refuse_plain(repo)
    here = await run_in_threadpool(_find_here, writing, repo, [oid for oid, _ in wanted])
    base = f"{base_url(hub, request)}/kernels/{repo}.git/info/lfs/objects"
    answers = []
    for oid, size in wanted:
        answer: dict[str, Any] = {"oid": oid, "size": size}
        if size > hub.settings.max_file_size:
            answer["error"] = {"code": 413, "message": _too_large(hub, oid)}
        elif oid not in here:
            expires = str(int(time.time()) + URL_SECONDS)
            signature = writing.signer.sign("put", str(repo), oid, str(size), expires)
            query = f"size={size}&expires={expires}&signature={signature}"
            answer["actions"] = {
                "upload": {"href": f"{base}/{oid}?{query}"},
                "verify": {"href": f"{base}/verify"},
            }
        answers.append(answer)
    return JSONResponse({"transfer": "basic", "objects": answers}, media_type=LFS_JSON)


def _find_here(writing: Writing, repo: RepoId, oids: list[str]) -> set[str]:
    publisher = writing.publisher
    publisher.uploads.sweep(repo)
    held = publisher.list_large(repo)
    return {oid for oid in oids if oid in held or publisher.uploads.find(repo, oid) is not None}


def _read_object(entry: Any) -> tuple[str, int]:
    table = entry if isinstance(entry, dict) else {}
    oid, size = table.get("oid"), table.get("size")
    if not isinstance(oid, str) or SHA256.fullmatch(oid) is None:
        raise RequestError(f"oid: expected 64 hex digits, found {repr(oid)[:80]}.")
    if type(size) is not int or size < 0:
        raise RequestError(f"size: expected a number of bytes, found {repr(size)[:50]}.")
    return oid, size


async def put_large(hub: Hub, request: Request) -> Response:
    """``PUT /kernels/{id}.git/info/lfs/objects/{oid}?size&expires&signature``: the bytes."""
    repo, oid = get_repo(request), get_parameter(request, "oid")
    writing = hub.get_writing()
    size, expires, signature = (
        request.query_params.get(key, "") for key in ("size", "expires", "signature")
    )
    if not writing.signer.is_signed(signature, "put", str(repo), oid, size, expires):
        raise ForbiddenError("The upload URL is not one that this hub gave; ask for a new one.")
    if int(expires) < time.time():
        raise ForbiddenError("The upload URL has expired; ask for a new one.")
    incoming = await run_in_threadpool(writing.publisher.uploads.begin, repo, oid, int(size))
    with incoming:
        await write_body(request, incoming.write, limit=int(size))
        await run_in_threadpool(incoming.finish)
    return Response(status_code=200)


async def verify_large(hub: Hub, request: Request) -> Response:
    """``POST /kernels/{id}.git/info/lfs/objects/verify``: ``{oid, size}`` came whole."""
    repo = get_repo(request)
    writing, _ = get_proposer(hub, request, repo)
    oid, size = _read_object(await read_json(request))
    waiting = writing.publisher.uploads.find(repo, oid)
    if waiting is not None and waiting.file.size == size:
        return JSONResponse({})
    found = (await run_in_threadpool(writing.publisher.list_large, repo)).get(oid)
    if waiting is None and found is not None and found[1].size == size:
        return JSONResponse({})
    raise RequestError(f"{oid}: no such object of {size} bytes has come; upload it again.")
