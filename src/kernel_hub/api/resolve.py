"""Downloads: the bytes of one file at a revision, whole or in part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kernel_hub.api.hub import Hub
from kernel_hub.api.ranges import Span, matches, parse_range
from kernel_hub.api.url import get_parameter, get_repo
from kernel_spec.wire import TreeFile

CHUNK = 1024 * 1024


def get_file(hub: Hub, request: Request) -> Response:
    """``GET`` and ``HEAD /kernels/{id}/resolve/{rev}/{path}``.

    ``ETag`` is the blob id of a file in git and the sha256 of a large one, which also has
    ``X-Linked-Etag`` and ``X-Linked-Size``. Clients keep files in their cache by these.
    """
    snapshot = hub.catalogue.get_snapshot(get_repo(request), get_parameter(request, "revision"))
    entry, content = hub.catalogue.get_content(snapshot, get_parameter(request, "path"))
    headers = _describe(entry) | {"X-Repo-Commit": snapshot.commit}
    etag = headers["ETag"]
    if matches(request.headers.get("If-None-Match"), etag):
        return Response(status_code=304, headers=headers)
    asked = request.headers.get("Range")
    if request.headers.get("If-Range", etag) != etag:
        asked = None
    return FileBytes(content, entry.size, parse_range(asked, entry.size), headers)


def _describe(entry: TreeFile) -> dict[str, str]:
    etag = f'"{entry.sha256 or entry.oid}"'
    name = PurePosixPath(entry.path).name
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(name, safe='')}",
        # Whatever a file holds, a browser shall not run it in this hub's name.
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    if entry.sha256 is not None:
        headers["Content-Type"] = "application/octet-stream"
        headers["X-Linked-Etag"] = etag
        headers["X-Linked-Size"] = str(entry.size)
    return headers


class FileBytes(Response):
    """An answer that holds a file, or a part of it.

    The server sends a whole file from disk by itself where it can (the ``pathsend`` extension);
    parts are read a megabyte at a time.
    """

    def __init__(
        self, content: Path | bytes, size: int, span: Span | None, headers: Mapping[str, str]
    ) -> None:
        self.content = content
        self.span = span or Span(0, size)
        self.whole = span is None
        self.status_code = 200 if self.whole else 206
        self.background = None
        self.init_headers({**headers, "Content-Length": str(self.span.stop - self.span.start)})
        if not self.whole:
            self.headers["Content-Range"] = f"bytes {self.span.start}-{self.span.stop - 1}/{size}"

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the answer; for ``HEAD`` its headers alone."""
        start = {"type": "http.response.start", "status": self.status_code}
        await send(start | {"headers": self.raw_headers})
        span = self.span
        if scope["method"] == "HEAD" or span.start == span.stop:
            await send(_body(b"", more=False))
        elif isinstance(self.content, bytes):
            await send(_body(self.content[span.start : span.stop], more=False))
        elif self.whole and "http.response.pathsend" in scope.get("extensions", {}):
            await send({"type": "http.response.pathsend", "path": str(self.content)})
        else:
            await self._send_chunks(self.content, send)

    async def _send_chunks(self, place: Path, send: Send) -> None:
        left = self.span.stop - self.span.start
        async with await anyio.open_file(place, "rb") as file:
            await file.seek(self.span.start)
            while left > 0:
                chunk = await file.read(min(CHUNK, left))
                if not chunk:
                    # Shorter than a moment ago: a cut connection is better than wrong bytes.
                    raise OSError(f"{place} became shorter while it was sent")
                left -= len(chunk)
                await send(_body(chunk, more=left > 0))


def _body(data: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}
