"""How requests are read: raw path parameters, flags, bounded bodies.

Paths are routed as they came, still percent-encoded, for ``feature%2Fx`` is one revision and
``feature/x`` is a revision and a path. So each parameter is decoded here, once, after routing.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from kernel_hub.errors import RepositoryNotFoundError, RequestError, RequestTooLargeError
from kernel_hub.service.catalogue import Catalogue
from kernel_hub.settings import HubSettings
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId, parse_repo_id

FORM_LIMIT = 1024 * 1024
FORM_FIELDS = 10_000


@dataclass(frozen=True, slots=True)
class Hub:
    """What a handler needs: the settings and the catalogue."""

    settings: HubSettings
    catalogue: Catalogue


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


async def read_form(request: Request) -> dict[str, list[str]]:
    """Read a URL-encoded form of at most 1 MiB.

    Raises:
        RequestError: it is not such a form.
        RequestTooLargeError: it is larger, or has more than 10 000 fields.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_LIMIT:
            raise RequestTooLargeError(f"The form has more than {FORM_LIMIT} bytes.")
    if body.count(b"&") >= FORM_FIELDS:
        raise RequestTooLargeError(f"The form has more than {FORM_FIELDS} fields.")
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as err:
        raise RequestError(f"The body is not a URL-encoded form in UTF-8: {err}") from err


def base_url(hub: Hub, request: Request) -> str:
    """Return the URL that the client reaches this hub by, without a slash at its end."""
    public = hub.settings.public_url
    if public is not None:
        return public.rstrip("/")
    return f"{request.url.scheme}://{request.url.netloc}"
