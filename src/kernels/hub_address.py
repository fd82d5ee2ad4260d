"""The address of a hub, and what of a URL no message shows: users, passwords, signed queries."""

from __future__ import annotations

import re
from typing import NamedTuple

from kernels.errors import SettingsError

_HTTP_URL = re.compile(
    r"(https?://)(?:([^/@?#]*)@)?((\[[0-9a-f:.]+\]|[^/@:?#\[\]]+)(?::(\d{1,5}))?(?:/.*)?)", re.I
)
# What the domain name system takes.
_LONGEST_LABEL = 63
_LAST_PORT = 65535
_FILE_URL = re.compile(r"file://(localhost)?/.*", re.I)

# The URLs in a text, but for those of files, whose paths may have an @. A scheme is short: to look for
# the end of a long one from each of its letters takes seconds where a hub sends a page of them.
_URL = re.compile(r"\b(?!file:)[a-z][a-z\d+.-]{0,31}://\S*", re.I)
_QUERY = re.compile(r"[?#]")
# What may stand behind a URL in a sentence.
_END = ".,;:)'\""


class HubAddress(NamedTuple):
    """A hub of the settings.

    Attributes:
        url: its URL, without credentials.
        owners: those that are looked up only there.
        credentials: ``user:password`` of the URL, percent-encoded; empty where it has none.
    """

    url: str
    owners: frozenset[str] = frozenset()
    credentials: str = ""

    def __repr__(self) -> str:
        return f"HubAddress({self.url!r}, {sorted(self.owners)!r})"


def parse_hub(url: str) -> HubAddress | None:
    """Return the hub that an ``https://``, ``http://`` or ``file:///`` URL names; None where it names none."""
    if _FILE_URL.fullmatch(url) is not None:
        return HubAddress(url.rstrip("/"))
    if (found := _HTTP_URL.fullmatch(url)) is None:
        return None
    scheme, credentials, rest, host, port = found.groups(default="")
    if int(port or 0) > _LAST_PORT or not _is_host(host):
        return None
    return HubAddress(f"{scheme}{rest}".rstrip("/"), credentials=credentials)


def parse_hubs(text: str, named: str = "KERNELS_HUB") -> tuple[HubAddress, ...]:
    """Read hubs, as ``KERNELS_HUB`` lists them: ``acme,ml=https://hub.corp file:///srv/kernels``.

    Args:
        text: hubs with blanks between.
        named: the variable or the option that holds the text, for the message.

    Raises:
        SettingsError: an entry that is neither an ``https://``, ``http://`` nor ``file://`` URL.
    """
    hubs = []
    for entry in text.split():
        owners, equals, url = entry.partition("=")
        if not equals or "://" in owners:
            owners, url = "", entry
        if (hub := parse_hub(url)) is None:
            suggestion = f"; write file://{url}" if url.startswith("/") else ""
            raise SettingsError(
                f"{named}: {show_refused(entry)} is not a hub; expected an https:// or "
                f"file:/// URL, optionally after 'owner,owner='{suggestion}."
            )
        hubs.append(hub._replace(owners=frozenset(filter(None, owners.split(",")))))
    return tuple(hubs)


def show_refused(url: str) -> str:
    """Quote for a message what names no hub, and say so where a user and password are left out."""
    shown = hide_credentials(url)
    hint = " (left out here: a user and password, which have to be percent-encoded)"
    return f"{shown!r}{hint if shown != url else ''}"


def hide_credentials(text: str) -> str:
    """Return a text without the user and password of the URLs in it.

    Where a URL cannot be read, nothing before its last ``@`` is left: a password in it may hold
    ``/`` or ``@`` as they are.
    """
    return _URL.sub(_hide_in_url, text)


def hide_secrets(text: str) -> str:
    """Return a text without what is secret in URLs that a hub leads to.

    Beside user and password that is the query: whoever has the one of a signed URL has the file.
    """
    return _URL.sub(_hide_query, hide_credentials(text))


def _hide_query(found: re.Match[str]) -> str:
    query = _QUERY.search(url := found[0])
    end = len(url.rstrip(_END))
    if query is None or query.end() >= end:
        return url
    return f"{url[: query.start()]}?...{url[end:]}"


def _hide_in_url(found: re.Match[str]) -> str:
    if "@" not in found[0]:
        return found[0]
    credentials = r"(?<=://)[^/@]*@" if _HTTP_URL.fullmatch(found[0]) else r"(?<=://).*@"
    return re.sub(credentials, "", found[0], count=1)


def _is_host(host: str) -> bool:
    if host.startswith("["):
        return True
    try:
        name = (host if host.isascii() else host.encode("idna").decode()).removesuffix(".")
    except UnicodeError:
        return False
    return all(0 < len(label) <= _LONGEST_LABEL for label in name.split("."))
