"""What it means where an http hub gives no good answer: the error to raise, and whether to ask again."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

from kernel_spec.names import RepoId
from kernels.errors import (
    EntryNotFoundError,
    HubAccessError,
    HubUnreachableError,
    RepoNotFoundError,
    RevisionNotFoundError,
)
from kernels.hub_address import hide_secrets

# A hub that asks for a longer one, in seconds, is not asked again.
LONGEST_PAUSE = 10.0


def refused(
    hub: str, response: Any, repo: RepoId | None, revision: str
) -> HubUnreachableError | HubAccessError | RepoNotFoundError | RevisionNotFoundError:
    """Return what an answer with another status than 200 means; an owner that is none counts as an entry.

    Args:
        hub: the URL of the hub.
        response: the answer, as the session has it.
        repo: the repository that was asked for; None where none was.
        revision: the commit, branch or tag that was asked for; empty where none was.
    """
    status = int(response.status_code)
    code = response.headers.get("x-error-code", "")
    said = hide_secrets(response.headers.get("x-error-message", ""))
    # After a redirect it is the URL that this led to.
    what = f"{response.request.method} {hide_secrets(str(response.request.url))}"
    if _is_passing(status):
        wait = _seconds(response.headers.get("retry-after"))
        limit = " Try again later." if wait is None else f" Try again in {wait:.0f} s."
        why = "the rate limit is reached" if status == 429 else "the hub has a fault"
        return HubUnreachableError(
            hub,
            f"{hub} gave no answer ({status}: {why}) to {what}.{limit}",
            status=status,
            retry_after=wait,
        )
    if repo is None and status == 404:
        return EntryNotFoundError("", "", f"{what}: not found")
    if repo is not None and (code == "RepoNotFound" or (status == 404 and not code)):
        return RepoNotFoundError(str(repo), [hub])
    if code == "RevisionNotFound":
        return RevisionNotFoundError(
            str(repo), revision, f"{repo} on {hub} has no revision {revision!r}."
        )
    if code == "EntryNotFound":
        return EntryNotFoundError(str(repo), revision, f"{what}: there is no such file or folder.")
    return HubAccessError(
        hub,
        f"{hub} refused {what} with status {status}{f' ({said})' if said else ''}. "
        "A private or gated kernel needs a token with access to it: run 'hf auth login', "
        "with HF_ENDPOINT naming this hub.",
        status=status,
    )


def too_slow(hub: str, what: str) -> HubUnreachableError:
    """Return the error of a hub that takes too long; ``what`` says over what, after the hub's URL."""
    return HubUnreachableError(
        hub,
        f"{hub} {hide_secrets(what)}, too slowly to wait. "
        "Try again later, or check the network and the proxy settings.",
    )


def unreachable(hub: str, url: str, err: Exception) -> HubUnreachableError:
    """Return the error of a hub of which the session got no answer at all."""
    reason = hide_secrets(str(err)) or type(err).__name__
    return HubUnreachableError(
        hub,
        f"{hub} cannot be reached: {reason} (asked for {hide_secrets(url)}). Check the network, the proxy "
        "settings and KERNELS_HUB, which may also name a folder (file:///srv/kernels). "
        "HF_HUB_OFFLINE=1 uses only what is in the cache, LOCAL_KERNELS=owner/name=path a copy "
        "on this disk.",
    )


def next_pause(response: Any, default: float | None) -> float | None:
    """Return the seconds until the next attempt; None where there is to be none.

    Args:
        response: the answer to the last attempt.
        default: the pause where the hub asks for none; None after the last attempt.
    """
    if default is None or not _is_passing(response.status_code):
        return None
    asked = _seconds(response.headers.get("retry-after"))
    if asked is None:
        return default
    return asked if asked <= LONGEST_PAUSE else None


def _is_passing(status: int) -> bool:
    """Say whether a status is one that time may cure: 429 and 5xx."""
    return status == 429 or status >= 500


def _seconds(text: str | None) -> float | None:
    """Read ``Retry-After``: seconds, or the date to wait for (RFC 9110, 10.2.3); None where it is neither."""
    if text is None:
        return None
    with suppress(ValueError):
        seconds = float(text)
        # What is no number at all is one to Python, and no pause.
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    from email.utils import parsedate_to_datetime

    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
