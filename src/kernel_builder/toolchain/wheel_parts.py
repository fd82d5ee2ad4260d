"""Parts of a pinned wheel by byte range: from the user's package index, else out of the whole wheel."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from kernel_builder.errors import CommandError, ToolchainError, ToolchainUnavailableError
from kernel_builder.process import run
from kernel_builder.toolchain.packed import Part
from kernel_builder.toolchain.pip_network import open_like_pip
from kernel_builder.toolchain.pip_watch import OnFetch, watch_pip
from kernel_builder.toolchain.wheels import blame_pip, explain_pip

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

_PIP_SECONDS = 1800
_SECONDS = 60
_TRIES = 3
_CHUNK = 1 << 18
_PARTIAL = 206
# What pip says with -vv of a wheel that it could take.
_FOUND = re.compile(r"\s*Found link (\S+?)[,\s]")


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a wheel: where they begin, how many they are, and their sha256."""

    offset: int
    length: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSpans:
    """What is wanted of one wheel.

    Attributes:
        name: the distribution.
        version: its version, without a local part.
        file: the name of the wheel, which ends in ``cp311-cp311-manylinux_2_28_x86_64.whl``.
        sha256: the hash of the whole wheel.
        spans: the bytes that are wanted.
    """

    name: str
    version: str
    file: str
    sha256: str
    spans: tuple[Span, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def size(self) -> int:
        """How many bytes are wanted."""
        return sum(span.length for span in self.spans)


class _FoundUrl(Exception):  # noqa: N818  # no error: it ends pip as soon as that has said enough
    """pip has said where the wheel lies."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class _NoRangesError(Exception):
    """The index does not give parts of this wheel; the message says why."""


def fetch_spans(
    wheel: WheelSpans,
    *,
    scratch: Path,
    variables: Mapping[str, str],
    on_fetch: OnFetch | None = None,
) -> tuple[Part, ...]:
    """Fetch parts of a wheel, each checked by its hash.

    pip says where the wheel lies, as its own settings have it. Where it cannot be read in parts, it
    is downloaded whole by pip.

    Args:
        wheel: the wheel and what is wanted of it.
        scratch: an empty directory for what is in the way afterwards.
        variables: the environment of pip, which names the user's package index, proxies and
            certificates.
        on_fetch: who is told how far it is.

    Raises:
        ToolchainUnavailableError: pip does not find it.
        ToolchainError: it is not the wheel that is pinned.
    """
    try:
        url = urlsplit(_find_url(wheel, scratch, variables, on_fetch))
        if url.scheme == "file":
            return _read_file(wheel, Path(unquote(url.path)))
        if "@" in url.netloc:
            raise _NoRangesError("its package index wants a login")
        try:
            opener = open_like_pip(variables)
        except ValueError as err:
            raise _NoRangesError(str(err)) from err
        return _read_ranges(wheel, url.geturl(), opener, on_fetch)
    except _NoRangesError as err:
        if on_fetch is not None:
            on_fetch(f"{wheel} is fetched whole: {err}", 0, 0)
        return _read_file(wheel, _download(wheel, scratch, variables, on_fetch))


def _find_url(
    wheel: WheelSpans, scratch: Path, variables: Mapping[str, str], on_fetch: OnFetch | None
) -> str:
    """Ask pip where the wheel lies, in whatever index it is set up for.

    pip lists the wheels that it could take before it takes one, and is ended there. Should a pip
    not list them, it goes on and downloads the wheel.

    Raises:
        ToolchainUnavailableError: pip finds no such wheel.
    """

    def see(line: str) -> None:
        match = _FOUND.match(line)
        if match is None:
            return
        url = urlsplit(match[1])
        other = url.fragment.startswith("sha256=") and url.fragment != f"sha256={wheel.sha256}"
        if unquote(url.path).endswith(f"/{wheel.file}") and not other:
            raise _FoundUrl(url._replace(fragment="").geturl())

    try:
        return _download(wheel, scratch, variables, on_fetch, see=see).as_uri()
    except _FoundUrl as found:
        return found.url


def _download(
    wheel: WheelSpans,
    scratch: Path,
    variables: Mapping[str, str],
    on_fetch: OnFetch | None,
    see: Callable[[str], None] | None = None,
) -> Path:
    """Download the whole wheel with pip, which sends what it says to ``see``."""
    listed, whole, temporary = (scratch / name for name in ("requirements.txt", "wheel", "tmp"))
    # With ===, no wheel of a local version (2.13.0+cpu) is taken for it.
    listed.write_text(f"{wheel.name}==={wheel.version} --hash=sha256:{wheel.sha256}\n")
    temporary.mkdir(exist_ok=True)
    python, abi, platform = wheel.file.removesuffix(".whl").split("-")[-3:]
    command = [sys.executable, "-m", "pip", "download", "-vv", "--disable-pip-version-check"]
    command += ["--no-input", "--progress-bar", "off", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python[2:], "--implementation", python[:2], "--abi", abi]
    command += ["--platform", platform, "--require-hashes", "--dest", str(whole), "-r", str(listed)]
    with watch_pip(temporary, on_fetch) as read_line:

        def hear(line: str) -> None:
            for each in (see, read_line):
                if each is not None:
                    each(line)

        try:
            run(
                command,
                variables={**variables, "TMPDIR": str(temporary), "PIP_QUIET": "0"},
                timeout=_PIP_SECONDS,
                on_line=hear,
            )
        except CommandError as err:
            raise blame_pip(err)(
                f"{wheel} cannot be fetched with pip ({explain_pip(err)}); let pip reach a package "
                "index (PIP_INDEX_URL, PIP_FIND_LINKS), or run kernel-builder fetch once where it can"
            ) from err
    (place,) = whole.glob("*.whl")
    return place


def _read_ranges(
    wheel: WheelSpans, url: str, opener: OpenerDirector, on_fetch: OnFetch | None
) -> tuple[Part, ...]:
    before = 0

    def tell(done: int) -> None:
        if on_fetch is not None:
            on_fetch(f"fetching {wheel}", before + done, wheel.size)

    parts = []
    for span in wheel.spans:
        data = _read_range(url, span, opener, tell)
        parts.append(_check(wheel, span, data, "its package index"))
        before += span.length
    return tuple(parts)


def _read_range(url: str, span: Span, opener: OpenerDirector, tell: Callable[[int], None]) -> bytes:
    """Read one range; where the connection breaks off, go on from there."""
    from http.client import HTTPException
    from urllib.request import Request

    data = bytearray()
    said = ""
    for _ in range(_TRIES):
        begin, last = span.offset + len(data), span.offset + span.length - 1
        request = Request(url, headers={"Range": f"bytes={begin}-{last}"})
        try:
            with opener.open(request, timeout=_SECONDS) as answer:
                if answer.status != _PARTIAL:
                    raise _NoRangesError("its server gives no parts of files")
                if not answer.headers.get("Content-Range", "").startswith(f"bytes {begin}-"):
                    raise _NoRangesError("its server gives other parts than were asked for")
                while len(data) < span.length:
                    chunk = answer.read(min(_CHUNK, span.length - len(data)))
                    if not chunk:
                        break
                    data += chunk
                    tell(len(data))
        except (OSError, HTTPException, ValueError) as err:
            said = str(getattr(err, "reason", None) or err) or type(err).__name__
            if 400 <= getattr(err, "code", 0) < 500:
                break
        if len(data) == span.length:
            return bytes(data)
    raise _NoRangesError(f"its parts cannot be read ({said or 'the connection breaks off'})")


def _read_file(wheel: WheelSpans, place: Path) -> tuple[Part, ...]:
    parts = []
    try:
        with place.open("rb") as stream:
            for span in wheel.spans:
                stream.seek(span.offset)
                parts.append(_check(wheel, span, stream.read(span.length), str(place)))
    except OSError as err:
        raise ToolchainUnavailableError(f"{place} cannot be read ({err.strerror})") from err
    return tuple(parts)


def _check(wheel: WheelSpans, span: Span, data: bytes, origin: str) -> Part:
    found = hashlib.sha256(data).hexdigest()
    if found != span.sha256:
        raise ToolchainError(
            f"{wheel} from {origin}: bytes {span.offset} to {span.offset + span.length} have sha256 "
            f"{found}, expected {span.sha256}; nothing of it is used. See what changes files on their "
            "way, such as a proxy or a mirror"
        )
    return Part(span.offset, data)
