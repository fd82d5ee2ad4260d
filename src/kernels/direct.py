"""Connections to hubs by Python's own HTTP client, for a machine that needs no proxy and no certificates of its own.

They are kept and used again, redirects are followed, and certificates are checked against the
authorities of the operating system. What :class:`DirectSession` offers is the little of
``httpx.Client`` that :mod:`kernels.hub_http` uses, so that the session of ``huggingface_hub`` can
take its place; that one costs a tenth of a second to import and two milliseconds a request
(``docs/decisions/0042-direct-connections.md``).
"""

from __future__ import annotations

import io
import os
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urljoin, urlsplit

CHUNK_BYTES = 1 << 18
REDIRECTS = 10
# So many seconds and bytes may pass without a piece of an answer: its head, what frames its chunks.
WAIT_SECONDS = 30.0
OVERHEAD_BYTES = 8 << 20
# Connections that wait for their next request, for each place.
IDLE = 16

_REDIRECT_CODES = frozenset({301, 302, 303, 307, 308})
# A redirect's own text is read so that the connection can be used again, if it is short and comes soon.
_REDIRECT_BYTES = 1 << 16
_REDIRECT_SECONDS = 1.0
_NEXT_LINK = re.compile(r'<([^>]*)>\s*;[^,<]*?rel="?next"?', re.IGNORECASE)
_URL_CHARACTERS = "%/:?#[]@!$&'()*+,;=~"


class DirectError(ConnectionError):
    """There was no whole answer."""


class Asked(NamedTuple):
    """What was asked, after redirects."""

    method: str
    url: str


class _Place(NamedTuple):
    scheme: str
    host: str
    port: int | None


class _Paced(io.RawIOBase):
    """What comes over a connection, given up where it makes no progress.

    The timeout of a socket begins anew with every byte, and ``http.client`` reads interim answers,
    headers and trailers for as long as there are more.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self.progress()

    def progress(self) -> None:
        """Note that the head, or a piece of the body, is here."""
        self._until = time.monotonic() + WAIT_SECONDS
        self._left = OVERHEAD_BYTES

    def readable(self) -> bool:
        """Say that it is there to be read."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Read what has come.

        Raises:
            TimeoutError: for too long, or in too many bytes, there was no piece of an answer.
        """
        if time.monotonic() > self._until:
            raise TimeoutError(f"no piece of an answer came in {WAIT_SECONDS:.0f} s")
        if self._left < 0:
            raise TimeoutError(f"{OVERHEAD_BYTES >> 20} MiB came, and no piece of an answer")
        size: int | None = self._raw.readinto(buffer)
        self._left -= size or 0
        return size

    def close(self) -> None:
        """Close what is read, too."""
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """An answer that is read at a pace."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.pace = _Paced(sock.makefile("rb", buffering=0))
        self.fp = io.BufferedReader(self.pace)

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        self.pace.progress()


class Answer:
    """An answer whose body is still to be read."""

    def __init__(self, raw: _Response, connection: HTTPConnection, request: Asked) -> None:
        self._raw = raw
        self._connection = connection
        self.request = request
        self.status_code = raw.status
        self.headers: Mapping[str, str] = raw.headers  # type: ignore[assignment]  # it has its methods

    @property
    def links(self) -> dict[str, dict[str, str]]:
        """The next page of a listing, as ``{"next": {"url": ...}}``."""
        found = _NEXT_LINK.search(self.headers.get("link") or "")
        return {"next": {"url": found[1]}} if found else {}

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the body in pieces as they come.

        Raises:
            DirectError: it ends early, or cannot be decoded.
        """
        encoding = (self.headers.get("content-encoding") or "identity").strip().lower()
        if encoding == "identity":
            return self._read()
        if encoding in {"gzip", "x-gzip", "deflate"}:
            return _decode(self._read())
        raise DirectError(f"the answer is encoded as {encoding!r}, which was not asked for")

    def _read(self) -> Iterator[bytes]:
        try:
            while chunk := self._raw.read1(CHUNK_BYTES):
                yield chunk
                self._raw.pace.progress()
        except (HTTPException, OSError) as err:
            raise DirectError(_reason(err)) from err
        if self._raw.length:
            raise DirectError(f"the answer was cut off: {self._raw.length} bytes are missing")

    def release(self) -> HTTPConnection | None:
        """Return the connection if it can be used again; it is closed otherwise."""
        whole = self._raw.isclosed() or self._raw.length == 0
        reusable = whole and not self._raw.will_close
        self._raw.close()
        if reusable:
            return self._connection
        self._connection.close()
        return None


class DirectSession:
    """Asks hubs, and keeps connections to them for the next question; used by many threads at once."""

    def __init__(self) -> None:
        self._state = threading.Lock()
        self._idle: dict[_Place, list[HTTPConnection]] = {}

    @contextmanager
    def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout: float,
        follow_redirects: bool = True,
    ) -> Iterator[Answer]:
        """Ask one question.

        Args:
            method: ``GET`` or ``HEAD``: it may be asked twice.
            url: an ``http://`` or ``https://`` URL.
            headers: sent as they are; a token goes to no other place that the hub redirects to.
            timeout: seconds, to connect and between two reads.
            follow_redirects: whether to ask where the answer points to.

        Raises:
            DirectError: there is no answer.
        """
        headers = {"accept": "*/*", "accept-encoding": "identity", **headers}
        for _ in range(REDIRECTS + 1):
            answer, place = self._ask(Asked(method, url), headers, timeout)
            try:
                location = answer.headers.get("location")
                follows = follow_redirects and answer.status_code in _REDIRECT_CODES
                if not follows or location is None:
                    yield answer
                    return
                _drop_body(answer)
            finally:
                self._keep(place, answer.release())
            url = _join(url, location)
            following = _place_of(url)
            if (place.scheme, following.scheme) == ("https", "http"):
                raise DirectError(f"it is redirected from https to {url}, which anybody can change")
            if following != place:
                headers = {k: v for k, v in headers.items() if k.lower() != "authorization"}
        raise DirectError(f"more than {REDIRECTS} redirects, the last one to {url}")

    def forget(self) -> None:
        """Drop the kept connections without a word to the other side: a fork's parent uses them."""
        self._state = threading.Lock()
        self._idle = {}

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_default_certs()
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _ask(
        self, asked: Asked, headers: Mapping[str, str], timeout: float
    ) -> tuple[Answer, _Place]:
        place = _place_of(asked.url)
        parts = urlsplit(asked.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        while True:
            connection = self._take(place, timeout)
            kept = connection.sock is not None
            try:
                connection.request(asked.method, target, headers=dict(headers))
                return Answer(cast("_Response", connection.getresponse()), connection, asked), place
            except (HTTPException, OSError, ValueError) as err:
                connection.close()
                if kept and not isinstance(err, TimeoutError):
                    # The other side has closed it since; the next one, or a new one, will do.
                    continue
                raise DirectError(_reason(err)) from err
            except BaseException:
                connection.close()
                raise

    def _take(self, place: _Place, timeout: float) -> HTTPConnection:
        with self._state:
            kept = self._idle.get(place)
            connection = kept.pop() if kept else None
        if connection is None:
            if place.scheme == "https":
                connection = HTTPSConnection(
                    place.host, place.port, timeout=timeout, context=self._context
                )
            else:
                connection = HTTPConnection(place.host, place.port, timeout=timeout)
            connection.response_class = _Response
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        return connection

    def _keep(self, place: _Place, connection: HTTPConnection | None) -> None:
        if connection is None:
            return
        with self._state:
            kept = self._idle.setdefault(place, [])
            if len(kept) < IDLE:
                kept.append(connection)
                return
        connection.close()


def knows_authorities() -> bool:
    """Say whether the operating system keeps certificates of authorities where OpenSSL looks for them."""
    paths: Any = ssl.get_default_verify_paths()
    if paths.cafile is not None:
        return True
    try:
        return paths.capath is not None and any(Path(paths.capath).iterdir())
    except OSError:
        return False


def direct_session() -> DirectSession:
    """Return the one session of this process."""
    return _SESSION


_SESSION = DirectSession()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SESSION.forget)


def _place_of(url: str) -> _Place:
    """Return where a URL leads.

    Raises:
        DirectError: it is none of http or https.
    """
    try:
        parts = urlsplit(url)
        place = _Place(parts.scheme, parts.hostname or "", parts.port)
    except ValueError as err:
        raise DirectError(f"{url!r} is no URL: {err}") from err
    if place.scheme not in {"http", "https"} or not place.host:
        raise DirectError(f"{url!r} is no http or https URL")
    return place


def _join(url: str, location: str) -> str:
    try:
        return urljoin(url, quote(location, safe=_URL_CHARACTERS))
    except ValueError as err:
        raise DirectError(f"it is redirected to {location!r}, which is no URL: {err}") from err


def _drop_body(answer: Answer) -> None:
    size, until = 0, time.monotonic() + _REDIRECT_SECONDS
    for chunk in answer.iter_bytes():
        size += len(chunk)
        if size > _REDIRECT_BYTES or time.monotonic() > until:
            return


def _decode(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress in pieces of a bounded size, so that the receiver can stop at any of them."""
    decoder: Any = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        for chunk in chunks:
            rest = chunk
            while rest:
                if piece := decoder.decompress(rest, CHUNK_BYTES):
                    yield piece
                rest = decoder.unconsumed_tail
    except zlib.error as err:
        raise DirectError(f"the answer cannot be decompressed: {err}") from err
    if not decoder.eof:
        raise DirectError("the answer was cut off: its compressed text has no end")


def _reason(err: Exception) -> str:
    return str(err) or type(err).__name__
