"""``kernel-status.toml`` at the root of a repository: says where a kernel has moved.

::

    kind = "redirect"
    destination = "acme/better-name"
    revision = "main"                 # optional

Source: the published client up to 0.16, which reads it from the revision that was asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from kernel_spec.errors import FormatError
from kernel_spec.names import RepoId, parse_repo_id

STATUS_NAME = "kernel-status.toml"
# It is read whole before it is understood; a real one has three lines.
STATUS_BYTES = 1 << 16


class Redirect(NamedTuple):
    """Where a kernel has moved; without a revision, what was asked for is asked for there."""

    destination: RepoId
    revision: str | None


def parse_status(data: bytes) -> Redirect | None:
    """Read a status; None where it is of a kind that this client does not know.

    Raises:
        FormatError: it is not TOML, or a redirect without a usable destination.
    """
    import tomllib

    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as err:
        raise FormatError(f"{STATUS_NAME}: expected TOML: {err}") from None
    if document.get("kind") != "redirect":
        return None
    destination, revision = document.get("destination"), document.get("revision")
    if not isinstance(destination, str) or not (revision is None or isinstance(revision, str)):
        raise FormatError(
            f"{STATUS_NAME}: expected destination = 'owner/name' and perhaps a revision, "
            f"found {document}"
        )
    return Redirect(parse_repo_id(destination), revision or None)
