"""Git URLs: which ones may be named as the source of a kernel, and their one form."""

from __future__ import annotations

import re

_GIT_URL = re.compile(
    r"(?:git\+)?(?:https?|ssh)://[^/\s]+(?:/\S*)?|git://[^/\s]+(?:/\S*)?", re.ASCII
)
_SCP_FORM = re.compile(r"([A-Za-z0-9._-]+@[A-Za-z0-9.-]+):/?([^/\s:][^\s:]*)", re.ASCII)


def normalize_git_url(url: str) -> str | None:
    """Return a git URL with a scheme, or None where it is none that a project or a variant may name.

    Schemes are http, https, ssh, git and git+ before one of the first three;
    ``git@host:owner/name`` becomes ``ssh://git@host/owner/name``. What cannot be printed is in none.
    """
    if not url.isprintable():
        return None
    if _GIT_URL.fullmatch(url) is not None:
        return url
    scp = _SCP_FORM.fullmatch(url)
    return None if scp is None else f"ssh://{scp[1]}/{scp[2]}"
