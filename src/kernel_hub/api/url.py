"""What the URL of a request says: the parameters of its path, the flags and numbers of its query.

Paths are routed as they came, still percent-encoded, for ``feature%2Fx`` is one revision and
``feature/x`` is a revision and a path. So each parameter is decoded here, once, after routing.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from kernel_hub.api.hub import Hub
from kernel_hub.errors import RepositoryNotFoundError, RequestError
from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId, parse_repo_id


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
    if (number := parse_number(text)) is None:
        raise RequestError(f"cursor is {text[:50]!r}, expected one that a Link header gave.")
    return number


def get_limit(request: Request, *, most: int) -> int:
    """Return how many entries a page shall hold: at most so many, also where more are asked for.

    Raises:
        RequestError: it is not a number from 1.
    """
    text = request.query_params.get("limit", str(most))
    number = parse_number(text)
    if not number:
        raise RequestError(f"limit is {text[:50]!r}, expected a number from 1.")
    return min(number, most)


def parse_number(text: str) -> int | None:
    """Read a number from 0, of at most nine digits; None where the text is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def base_url(hub: Hub, request: Request) -> str:
    """Return the URL that the client reaches this hub by, without a slash at its end."""
    public = hub.settings.public_url
    if public is not None:
        return public.rstrip("/")
    return f"{request.url.scheme}://{request.url.netloc}"
