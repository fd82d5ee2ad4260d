"""How errors are told: status, ``X-Error-Code``, ``X-Error-Message`` and a body with ``error``."""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernel_hub.api.hub import READ_ONLY, Hub
from kernel_hub.errors import HubError, ReadOnlyError, RepositoryNotFoundError
from kernel_hub.service.operations import INLINE_LIMIT
from kernel_spec.errors import KernelError

log = logging.getLogger("kernel_hub")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def answer_error(
    status: int, message: str, *, code: str | None = None, more: Mapping[str, str] | None = None
) -> JSONResponse:
    """Write an error; the message also stands in a header, in one line of ASCII.

    ``more`` are further members of the body.
    """
    line = " ".join(message.split()).encode("ascii", "backslashreplace").decode()
    # What was asked for may hold any character, and no header may hold a control character.
    line = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", line)
    headers = {"X-Error-Message": line} | ({"X-Error-Code": code} if code else {})
    return JSONResponse({"error": message, **(more or {})}, status, headers)


def answer_kernel_error(request: Request, error: Exception) -> Response:
    """Tell an error of ours; what is wrong on the hub's disk is for its log alone."""
    if isinstance(error, HubError):
        response = answer_error(error.status, str(error), code=error.code)
        response.headers.update(error.headers)
        return response
    if isinstance(error, KernelError):
        log.error("%s: %s", request.scope["path"], error)
        return answer_error(
            500, "The repository is damaged on this hub; its log has the details, for its operator."
        )
    raise error


def answer_system_error(_request: Request, error: Exception) -> Response:
    """Tell that the disk is full: nothing is wrong with the request. Anything else is a fault of ours."""
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        log.error("%s", error)
        return answer_error(507, "The disk of this hub is full; nothing was written.")
    raise error


def answer_http_error(request: Request, error: Exception) -> Response:
    """Tell what the router found: no such route, or not with this method."""
    if not isinstance(error, HTTPException):
        raise error
    message = f"{request.method} {request.scope['path'][:200]}: {error.detail}."
    response = answer_error(error.status_code, message)
    response.headers.update(error.headers or {})
    return response


def refuse_write(hub: Hub, request: Request) -> Response:
    """Refuse a write that this hub does not know."""
    if hub.writing is None:
        raise ReadOnlyError(READ_ONLY)
    raise ReadOnlyError(
        f"This hub does not do {request.method} {request.scope['path'][:200]}: it takes repositories "
        "of kernels, their branches, tags and commits."
    )


def refuse_xet(hub: Hub, _request: Request) -> Response:
    """Refuse uploads in chunks; clients ask for them first where they have the package hf-xet."""
    if hub.writing is None:
        raise ReadOnlyError(READ_ONLY)
    raise ReadOnlyError(
        "This hub takes no Xet uploads: set HF_HUB_DISABLE_XET=1 for files of more than "
        f"{INLINE_LIMIT // 1024**2} MiB."
    )


def no_such_route(_hub: Hub, request: Request) -> Response:
    """Tell that the URL is none of this hub's."""
    return answer_error(404, f"This hub answers nothing at {request.scope['path'][:200]}.")


def refuse_type(_hub: Hub, request: Request) -> Response:
    """Refuse models, datasets and spaces, which this hub does not keep."""
    raise RepositoryNotFoundError(
        f"This hub keeps kernels only, and {request.scope['path'][:200]} asks for something else. "
        f"Ask with repo_type='kernel'."
    )
