"""The HTTP client that ``huggingface_hub`` brings: opened, asked for one URL, its errors told apart.

It brings proxies, certificates and connection reuse, and is imported at the first question. What it
makes of proxies and certificates that it cannot use becomes an error of ours that names the variables.
"""

from __future__ import annotations

import importlib
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from kernels.errors import SettingsError
from kernels.hub_address import hide_secrets
from kernels.settings import network_variables
from kernels.waiting import Wait

REDIRECTS = 10
REDIRECT_BYTES = 1 << 16
REDIRECT_SECONDS = 1.0

# How answers may be packed: a thousand to one at most, and once.
PACKED = "gzip"
_UNPACKED = frozenset({"", "identity", "gzip", "deflate"})

# What a client quotes, in either of Python's two ways, may be a part of a password.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")

# httpx.Client of huggingface_hub 1.x, httpx2.Client of 2.x: the same methods, two packages.
Session = Any


def open_session() -> Session:
    """Return the session that ``huggingface_hub`` shares within this process.

    Raises:
        SettingsError: proxies or certificates of the environment that it cannot use.
    """
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]  # documented there

    refused: list[type[Exception]] = [OSError, ValueError]
    refused += [sys.modules[name].InvalidURL for name in ("httpx", "httpx2") if name in sys.modules]
    try:
        return get_session()
    except ImportError as err:
        if "socksio" not in str(err):
            raise
        what = "a SOCKS proxy needs the Python package socksio: pip install socksio"
    except tuple(refused) as err:
        what = (
            f"the HTTP client cannot use what is set there: {_QUOTED.sub('...', str(err))}. "
            "Expected: a proxy as http://host:port, https://host:port or socks5://host:port, a "
            "password in it percent-encoded; hosts without one as names and addresses between "
            "commas; SSL_CERT_FILE as a file of certificates in PEM"
        )
    names = ", ".join(network_variables()) or "the system's proxy settings"
    # The message holds the reason; the sixty lines of the client add nothing.
    raise SettingsError(f"{names}: {what}.") from None


def errors_of(session: Session, *more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors by which a session says that it has no answer, and more that are to be caught."""
    package = importlib.import_module(type(session).__module__.partition(".")[0])
    # Names and ports that no socket takes come through the client as Python raises them.
    theirs: tuple[type[Exception], ...] = (package.HTTPError, package.InvalidURL)
    errors = (*theirs, ConnectionError, UnicodeError, OverflowError, *more)
    socksio = sys.modules.get("socksio")
    return errors if socksio is None else (*errors, socksio.SOCKSError)


@contextmanager
def ask(session: Session, url: str, wait: Wait, headers: Mapping[str, str]) -> Iterator[Any]:
    """Ask for a URL, and follow redirects; the body of the answer is still to be read.

    The session would read all that a redirect itself says, and that may have no end.

    Raises:
        ConnectionError: too many redirects, one that gives up encryption, or a SOCKS proxy that does
            not connect, or an answer that is packed twice, or in a way that was not asked for, and
            may unpack to more than memory holds; beside what :func:`errors_of` lists and
            ``TooSlowError``.
    """
    handshake = _SocksHandshake(wait)
    get = partial(session.stream, "GET", url, headers=headers, follow_redirects=False)
    if "socksio" in sys.modules:
        get = partial(get, extensions={"trace": handshake})
    with ExitStack() as answers:
        try:
            # To connect, to read, to write, for a free connection.
            timeouts = (wait.read, wait, wait.read, wait.read)
            response = answers.enter_context(get(timeout=timeouts))
        except TypeError:
            # A client that reckons with its time-outs takes numbers alone; then each read is
            # bounded, and their sum is not.
            response = answers.enter_context(get(timeout=wait.read))
        except errors_of(session):
            if not handshake.fault:
                raise
            raise ConnectionError(f"the SOCKS proxy did not connect: {handshake.fault}") from None
        for _ in range(REDIRECTS):
            following = response.next_request
            if following is None:
                break
            if (response.url.scheme, following.url.scheme) == ("https", "http"):
                raise ConnectionError(
                    f"redirected from https to {_shown(following)}, which anybody can change"
                )
            _drop_body(response)
            response = session.send(following, stream=True, follow_redirects=False)
            answers.callback(response.close)
        else:
            last = _shown(response.request)
            raise ConnectionError(f"more than {REDIRECTS} redirects, the last to {last}")
        packed = response.headers.get("content-encoding", "").strip().lower()
        if packed not in _UNPACKED:
            raise ConnectionError(
                f"it answers packed as {packed[:60]!r}, expected {PACKED} or as it is"
            )
        yield response


def _shown(request: Any) -> str:
    return hide_secrets(str(request.url))


class _SocksHandshake:
    """Bounds what a SOCKS proxy may take to connect, and keeps what went wrong there.

    The client of huggingface_hub 1.x reads in that handshake without a time-out. It tells its trace
    of the socket before, and the operating system bounds the reads of a socket that blocks.
    """

    def __init__(self, wait: Wait) -> None:
        self._wait = wait
        self.fault = ""

    def __call__(self, event: str, told: Mapping[str, Any]) -> None:
        match event:
            case "socks.setup_socks5_connection.started":
                seconds = min(self._wait.read, self._wait.left)
                _bound_reads(told["stream"].get_extra_info("socket"), seconds)
            case "socks.setup_socks5_connection.failed":
                err = told["exception"]
                silent = isinstance(err.__cause__, BlockingIOError | TimeoutError)
                self.fault = "it does not answer" if silent else str(err) or type(err).__name__


def _bound_reads(connection: socket.socket, seconds: float) -> None:
    milliseconds = max(1, round(seconds * 1000))
    value = (
        struct.pack("I", milliseconds)
        if os.name == "nt"
        else struct.pack("ll", milliseconds // 1000, milliseconds % 1000 * 1000)
    )
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)


def _drop_body(redirect: Any) -> None:
    """Read what a redirect says where that is short and not packed, so that its connection serves again."""
    packed = "content-encoding" in redirect.headers
    size, until = 0, time.monotonic() + REDIRECT_SECONDS
    for chunk in () if packed else redirect.iter_bytes():
        size += len(chunk)
        if size > REDIRECT_BYTES or time.monotonic() > until:
            break
    redirect.close()
