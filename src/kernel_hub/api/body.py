"""The bodies of requests: bounded in size, and not waited for without end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from kernel_hub.errors import RequestError, RequestTooLargeError, SlowClientError
from kernel_hub.service.received import load_received

FORM_LIMIT = 1024 * 1024
FORM_FIELDS = 10_000
JSON_LIMIT = 4 * 1024 * 1024
# Who sends nothing for so long does not keep its connection.
IDLE_SECONDS = 60.0
# The bodies of files and commits go to disk in pieces of this size.
PIECE = 1024 * 1024


async def read_form(request: Request) -> dict[str, list[str]]:
    """Read a URL-encoded form of at most 1 MiB.

    Raises:
        RequestError: it is not such a form.
        RequestTooLargeError: it is larger, or has more than 10 000 fields.
    """
    body = await _read_body(request, FORM_LIMIT, "form")
    if body.count(b"&") >= FORM_FIELDS:
        raise RequestTooLargeError(f"The form has more than {FORM_FIELDS} fields.")
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as err:
        raise RequestError(f"The body is not a URL-encoded form in UTF-8: {err}") from err


async def _read_body(request: Request, limit: int, what: str) -> bytearray:
    body = bytearray()
    async for chunk in stream_body(request):
        body += chunk
        if len(body) > limit:
            raise RequestTooLargeError(f"The {what} has more than {limit} bytes.")
    return body


async def read_json(request: Request) -> dict[str, Any]:
    """Read a JSON object of at most 4 MiB; no body is an empty one.

    Raises:
        RequestError: it is not such an object.
        RequestTooLargeError: it is larger.
    """
    body = await _read_body(request, JSON_LIMIT, "body")
    try:
        document = load_received(body or b"{}")
    except ValueError as err:
        raise RequestError("The body is not JSON in UTF-8.") from err
    if not isinstance(document, dict):
        raise RequestError("The body is not a JSON object.")
    return document


async def stream_body(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes.

    Raises:
        RequestError: the client left before its end.
        SlowClientError: nothing came for a minute.
    """
    chunks = request.stream()
    while True:
        try:
            with anyio.fail_after(IDLE_SECONDS):
                chunk = await anext(chunks, None)
        except ClientDisconnect as err:
            raise RequestError("The client left before the end of its body.") from err
        except TimeoutError as err:
            raise SlowClientError(f"Nothing of the body came for {IDLE_SECONDS:g} s.") from err
        if chunk is None:
            return
        yield chunk


async def write_body(request: Request, write: Callable[[bytes], object], *, limit: int) -> None:
    """Pass a body on, in pieces of a megabyte, to a function that may block.

    Raises:
        RequestTooLargeError: it has more bytes than the limit.
        RequestError: the client left before its end.
    """
    piece, size = bytearray(), 0
    async for chunk in stream_body(request):
        size += len(chunk)
        if size > limit:
            raise RequestTooLargeError(f"The body has more than {limit} bytes.")
        piece += chunk
        if len(piece) >= PIECE:
            await run_in_threadpool(write, bytes(piece))
            piece.clear()
    if piece:
        await run_in_threadpool(write, bytes(piece))


def get_text(table: Mapping[str, Any], key: str) -> str:
    """Return a text of a JSON object.

    Raises:
        RequestError: it is not there, or something else.
    """
    value = table.get(key)
    if not isinstance(value, str):
        raise RequestError(f"{key}: expected a text, found {repr(value)[:50]}.")
    return value
