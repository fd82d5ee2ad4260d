"""The edge of every request: an id, a line in the access log, and what no handler caught."""

from __future__ import annotations

import json
import logging
import secrets
import time
from dataclasses import asdict, dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernel_hub.api.failure import answer_error

access_log = logging.getLogger("kernel_hub.access")
log = logging.getLogger("kernel_hub")


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """One request, as the log has it.

    Attributes:
        method: the HTTP method.
        path: the path as it was sent, percent-encoded.
        query: the query as it was sent.
        status: the status of the answer; 499 where the client left before one began.
        bytes: the length of the answer's body.
        ms: how long it took, in milliseconds.
        id: the ``X-Request-Id`` of the answer.
    """

    method: str
    path: str
    query: str
    status: int
    bytes: int
    ms: float
    id: str


class Edge:
    """Gives each answer its id and safety headers, writes the log, turns a crash into a 500.

    A record of the logger ``kernel_hub.access`` has one line of JSON as its message and the
    :class:`Access` as its attribute ``access``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        request_id = secrets.token_hex(8)
        status, sent, announced = 499, 0, "0"

        async def observe(message: Message) -> None:
            nonlocal status, sent, announced
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                announced = headers.get("Content-Length", "0")
            elif message["type"] == "http.response.pathsend":
                sent = int(announced)
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, observe)
        except Exception:  # the edge of the process: the client gets an answer, the log the rest
            log.exception("request %s failed", request_id)
            if status == 499:
                message = f"The hub failed; its log has more under {request_id}."
                await answer_error(500, message)(scope, receive, observe)
        finally:
            access = Access(
                method=scope["method"],
                path=scope.get("raw_path", b"").decode("latin-1"),
                query=scope["query_string"].decode("latin-1"),
                status=status,
                bytes=sent,
                ms=round((time.perf_counter() - began) * 1000, 3),
                id=request_id,
            )
            access_log.info(json.dumps(asdict(access)), extra={"access": access})
