"""The edge of every request: an id, a line in the access log, and what no handler caught."""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from dataclasses import asdict, dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernel_hub.api.failure import answer_error

access_log = logging.getLogger("kernel_hub.access")
log = logging.getLogger("kernel_hub")

# No client sees this status: it left before an answer began.
NOT_ANSWERED = 499

_SIGNATURE = re.compile(r"signature=[^&]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """One request, as the log has it.

    Attributes:
        method: the HTTP method.
        path: the path as it was sent, percent-encoded.
        query: the query as it was sent, without signatures: they give the right to write.
        status: the status of the answer; 499 where none began.
        bytes: the length of the answer's body, as far as it was sent.
        ms: how long it took until the last bytes were handed to the server, in milliseconds.
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
        status, sent, announced, logged = NOT_ANSWERED, 0, "0", False

        def write_log() -> None:
            nonlocal logged
            logged = True
            access = Access(
                method=scope["method"],
                path=scope.get("raw_path", b"").decode("latin-1"),
                query=_SIGNATURE.sub("signature=...", scope["query_string"].decode("latin-1")),
                status=status,
                bytes=sent,
                ms=round((time.perf_counter() - began) * 1000, 3),
                id=request_id,
            )
            access_log.info(json.dumps(asdict(access)), extra={"access": access})

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
                write_log()
            else:
                sent += len(message.get("body", b""))
                # Before the last bytes leave: a client that has its answer finds it in the log.
                if not message.get("more_body", False):
                    write_log()
            await send(message)

        try:
            await self.app(scope, receive, observe)
        except Exception:  # the edge of the process: the client gets an answer, the log the rest
            log.exception("request %s failed", request_id)
            if status == NOT_ANSWERED:
                message = f"The hub failed; its log has more under {request_id}."
                await answer_error(500, message)(scope, receive, observe)
        finally:
            if not logged:
                write_log()
