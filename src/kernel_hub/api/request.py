"""How requests are read: raw path parameters, flags, bounded bodies.

Paths are routed as they came, still percent-encoded, for ``feature%2Fx`` is one revision and
``feature/x`` is a revision and a path. So each parameter is decoded here, once, after routing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, unquote

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from kernel_hub.auth import Right, Signer, Token, TokenFile
from kernel_hub.errors import (
    ForbiddenError,
    ReadOnlyError,
    RepositoryNotFoundError,
    RequestError,
    RequestTooLargeError,
    SlowClientError,
    UnknownTokenError,
)
from kernel_hub.proposing import Proposing
from kernel_hub.publisher import Publisher
from kernel_hub.service.catalogue import Catalogue
from kernel_hub.service.received import load_received
from kernel_hub.settings import HubSettings
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId, parse_repo_id

FORM_LIMIT = 1024 * 1024
FORM_FIELDS = 10_000
JSON_LIMIT = 4 * 1024 * 1024
# Who sends nothing for so long does not keep its connection.
IDLE_SECONDS = 60.0
# The bodies of files and commits go to disk in pieces of this size.
PIECE = 1024 * 1024

READ_ONLY = (
    "This hub is read-only: it serves a directory. "
    "Publish by writing to that directory, on the machine or share that holds it; "
    "its operator can let holders of tokens write over HTTP (kernel-hub serve --tokens FILE)."
)


@dataclass(frozen=True, slots=True)
class Writing:
    """What handlers need of a hub that is written to over HTTP."""

    publisher: Publisher
    proposing: Proposing
    tokens: TokenFile
    signer: Signer


@dataclass(frozen=True, slots=True)
class Hub:
    """What a handler needs: the settings, the catalogue, and how to write, where anybody may."""

    settings: HubSettings
    catalogue: Catalogue
    writing: Writing | None = None

    def get_writing(self) -> Writing:
        """Return how to write.

        Raises:
            ReadOnlyError: nobody may.
        """
        if self.writing is None:
            raise ReadOnlyError(READ_ONLY)
        return self.writing


def find_token(hub: Hub, request: Request) -> Token:
    """Return the token that a request bears.

    Raises:
        ReadOnlyError: this hub has none.
        UnknownTokenError: it bears none, or one that this hub does not know.
    """
    writing = hub.get_writing()
    kind, _, secret = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        raise UnknownTokenError(
            "Writing to this hub needs a token; its operator makes one (kernel-hub add-token), and "
            "`hf auth login` or HF_TOKEN gives it to the client."
        )
    token = writing.tokens.find(secret.strip())
    if token is None:
        raise UnknownTokenError("Invalid credentials in Authorization header")
    if token.is_expired():
        raise UnknownTokenError(
            f"The token {token.name} expired on {token.expires}; the hub's operator makes a new one "
            "(kernel-hub add-token)."
        )
    return token


def get_writer(hub: Hub, request: Request, repo: RepoId) -> tuple[Writing, Token]:
    """Return how to write to a repository, if the bearer of the request may.

    Raises:
        ReadOnlyError, UnknownTokenError: as for find_token.
        ForbiddenError: the token is for other owners, or to propose changes only.
    """
    writing, token = get_proposer(hub, request, repo)
    if token.may is not Right.WRITE:
        raise ForbiddenError(
            f"The token {token.name} may propose changes to {repo} (create_pr=True), and make none."
        )
    return writing, token


def get_proposer(hub: Hub, request: Request, repo: RepoId) -> tuple[Writing, Token]:
    """Return how to write to a repository, if the bearer of the request may at least propose a change.

    Raises:
        ReadOnlyError, UnknownTokenError: as for find_token.
        ForbiddenError: the token is for other owners.
    """
    token = find_token(hub, request)
    if repo.owner not in token.owners:
        owners = ", ".join(sorted(token.owners))
        raise ForbiddenError(
            f"The token {token.name} may not write to {repo}: it is for repositories of {owners}."
        )
    return hub.get_writing(), token


class RawPathRouting:
    """Makes the router see the path as the client sent it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its raw path."""
        if scope["type"] == "http":
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            # Bytes beyond ASCII may not be in a path; this keeps them apart from any that may.
            scope = {**scope, "path": raw.decode("latin-1")}
        await self.app(scope, receive, send)


def get_parameter(request: Request, name: str) -> str:
    """Return a path parameter, decoded; the empty string where the route leaves it out.

    Raises:
        RequestError: it is not UTF-8 in percent-encoding.
    """
    raw: str = request.path_params.get(name, "")
    try:
        return unquote(raw.encode("ascii").decode(), errors="strict")
    except UnicodeError as err:
        raise RequestError(f"The {name} in the URL is not percent-encoded UTF-8.") from err


def get_repo(request: Request) -> RepoId:
    """Return the repository that the URL names.

    Raises:
        RepositoryNotFoundError: the name is none that a repository can have.
    """
    name = f"{get_parameter(request, 'owner')}/{get_parameter(request, 'name')}"
    try:
        return parse_repo_id(name)
    except FormatError as err:
        raise RepositoryNotFoundError(f"This hub has no repository {name[:200]!r}: {err}") from err


def get_flag(request: Request, name: str) -> bool:
    """Return a flag of the query; absent means false.

    Raises:
        RequestError: its value is not ``true`` or ``false``.
    """
    return parse_flag(name, request.query_params.get(name, "false"))


def parse_flag(name: str, text: str) -> bool:
    """Read a flag.

    Raises:
        RequestError: it is not ``true``, ``false``, ``1`` or ``0``.
    """
    match text.lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise RequestError(f"{name} is {text[:50]!r}, expected true or false.")


def get_cursor(request: Request) -> int:
    """Return how many entries earlier pages held.

    Raises:
        RequestError: the cursor is none that this hub gave.
    """
    text = request.query_params.get("cursor", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise RequestError(f"cursor is {text[:50]!r}, expected one that a Link header gave.")
    return int(text)


def get_limit(request: Request, *, most: int) -> int:
    """Return how many entries a page shall hold: at most so many, also where more are asked for.

    Raises:
        RequestError: it is not a number from 1.
    """
    text = request.query_params.get("limit", str(most))
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text)):
        raise RequestError(f"limit is {text[:50]!r}, expected a number from 1.")
    return min(int(text), most)


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
        raise RequestError(f"{key}: expected a text.")
    return value


def base_url(hub: Hub, request: Request) -> str:
    """Return the URL that the client reaches this hub by, without a slash at its end."""
    public = hub.settings.public_url
    if public is not None:
        return public.rstrip("/")
    return f"{request.url.scheme}://{request.url.netloc}"
