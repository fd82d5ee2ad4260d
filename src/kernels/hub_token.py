"""The user's token for a hub: had where ``huggingface_hub`` has it, and judged before it is sent."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernels.errors import HubUnreachableError, SettingsError
from kernels.http_session import errors_of, open_session
from kernels.settings import RESOURCE_VARIABLE, find_exchange, has_token_variable, hide_tokens

# RFC 6750, 2.1, and what else fits into a header.
_TOKEN = re.compile(r"[\x21-\x7e]+")
# For each read.
EXCHANGE_SECONDS = 15.0


def read_token(url: str) -> str | None:
    """Return the user's token, for the hub at ``url``; ``None`` where there is none.

    Raises:
        HubUnreachableError: the token is to be had in exchange, and the hub gives no answer.
        SettingsError: the file that holds it cannot be read, the hub exchanges none, or what is
            there is no token.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_token_to_send  # type: ignore[attr-defined]

    try:
        place = Path(constants.HF_TOKEN_PATH)
        if not has_token_variable() and place.is_fifo():
            raise OSError(errno.EINVAL, "not a plain file", str(place))
        with _bounded_exchange():
            token: str | None = get_token_to_send(None)
    except SettingsError:
        raise
    except Exception as err:  # an exchange fails by any: an answer without a token is a KeyError
        if (resource := find_exchange()) is not None:
            raise _not_exchanged(url, resource, err) from None
        if not isinstance(err, OSError | ValueError):
            raise
        raise SettingsError(
            f"The token for {url} cannot be read: {err}. Let this user read that file, or set HF_TOKEN."
        ) from None
    if token and _TOKEN.fullmatch(token) is None:
        raise SettingsError(
            "The token for the hub (HF_TOKEN, or the file of 'hf auth login') holds characters that "
            "no token has: copy it anew."
        )
    return token or None


@contextmanager
def _bounded_exchange() -> Iterator[None]:
    """Bound each read of an exchange; the client's own session waits for ever."""
    if find_exchange() is None:
        yield
        return
    session = open_session()
    before = session.timeout
    session.timeout = EXCHANGE_SECONDS
    try:
        yield
    finally:
        session.timeout = before


def _not_exchanged(url: str, resource: str, err: Exception) -> HubUnreachableError | SettingsError:
    """Say why a hub gave no token for the identity of a CI job; nothing secret is in it.

    Source: "Trusted Publishers" in the documentation of huggingface_hub 2.4.
    """
    response = getattr(err, "response", None)
    status = None if response is None else int(response.status_code)
    words = hide_tokens(str(getattr(err, "server_message", None) or "")).strip()
    may_pass = False
    if status is not None:
        reason = f"it answered {status}{f' ({words})' if words else ''}"
        may_pass = status == 429 or status >= 500
    elif isinstance(err, errors_of(open_session())):
        reason = f"it cannot be reached ({hide_tokens(str(err)) or type(err).__name__})"
        may_pass = True
    elif isinstance(err, LookupError):
        reason = f"its answer has no {err}"
    else:
        reason = hide_tokens(str(err)).rstrip(".")
    what = f"{RESOURCE_VARIABLE}={resource!r}: {url} gave no token for the identity of this job: {reason}."
    if may_pass:
        advice = "Try again later, or check the network and the proxy settings."
        return HubUnreachableError(url, f"{what} {advice}", status=status)
    return SettingsError(
        f"{what} Expected: HF_OIDC_ID_TOKEN with the id token that the CI provider made for this hub, or "
        "a job of GitHub Actions with 'permissions: id-token: write'; and "
        f"{resource} with that job among its trusted publishers. Where no exchange is meant, unset "
        f"{RESOURCE_VARIABLE} and set HF_TOKEN."
    )
