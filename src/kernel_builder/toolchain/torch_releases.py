"""Headers and export lists of pinned torch releases: fetched without the rest of torch, and kept."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from kernel_builder.errors import ToolchainError
from kernel_builder.toolchain.kept import keep_tree
from kernel_builder.toolchain.packed import (
    Part,
    Piece,
    list_defined,
    read_bytes,
    unpack_entries,
    unpack_piece,
)
from kernel_builder.toolchain.pip_watch import OnFetch
from kernel_builder.toolchain.torch import TorchInstall, read_torch
from kernel_builder.toolchain.wheel_parts import Span, WheelSpans, fetch_spans
from kernel_spec.version import MajorMinor, parse_major_minor

_HEADERS = "torch/include"
_EXPORTS = "exports.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedLibrary:
    """Where the tables of a library of torch lie in the wheel.

    Attributes:
        name: such as ``libc10.so``.
        symbols: its ``.dynsym``.
        names: its ``.dynstr``.
    """

    name: str
    symbols: Piece
    names: Piece


@dataclass(frozen=True, kw_only=True, slots=True)
class PinnedTorch:
    """A release of torch, with what is taken out of its wheel.

    Attributes:
        release: such as 2.11.
        version: such as ``2.11.0``.
        machine: the processor that it is for.
        file: the name of the wheel.
        wheel: the sha256 of the wheel.
        spans: the bytes of the wheel that hold all of what follows.
        headers: where the entries of its headers begin and end, in bytes of the wheel.
        headers_sha256: of the lines ``sha256␣␣path`` of its headers, sorted by path.
        version_file: ``version.py``.
        libraries: the libraries whose names are exports.
        exports_sha256: of the list of these names.
    """

    release: MajorMinor
    version: str
    machine: str
    file: str
    wheel: str
    spans: tuple[Span, ...]
    headers: tuple[int, int]
    headers_sha256: str
    version_file: Piece
    libraries: tuple[PinnedLibrary, ...]
    exports_sha256: str

    @property
    def key(self) -> str:
        """The name of its directory in the store, which changes with the wheel and with all that is compiled against."""
        pinned = "\n".join((self.wheel, self.headers_sha256, self.exports_sha256))
        digest = hashlib.sha256(pinned.encode()).hexdigest()
        return f"torch-{self.version}-{self.machine}-{digest[:16]}"


def read_torch_releases(machine: str) -> tuple[PinnedTorch, ...]:
    """Return the pinned releases for a processor, the newest first; none where none are pinned."""
    return tuple(each for each in _read() if each.machine == machine)


def find_release(machine: str, release: MajorMinor | None) -> PinnedTorch | None:
    """Return the pinned torch of a release, or None where none is pinned for a processor."""
    pinned = read_torch_releases(machine)
    return next((each for each in pinned if each.release == release), None)


@cache
def _read() -> tuple[PinnedTorch, ...]:
    place = files("kernel_builder") / "toolchain" / "torch-releases.toml"
    found = [parse_release(each) for each in tomllib.loads(place.read_text("utf-8"))["release"]]
    return tuple(sorted(found, key=lambda each: each.release, reverse=True))


def parse_release(row: Mapping[str, Any]) -> PinnedTorch:
    """Read one ``[[release]]`` of ``torch-releases.toml``."""
    begin, end = row["headers"]["bytes"]
    return PinnedTorch(
        release=parse_major_minor(row["version"]),
        version=row["version"],
        machine=row["machine"],
        file=row["file"],
        wheel=row["wheel"],
        spans=tuple(Span(**each) for each in row["spans"]),
        headers=(begin, end),
        headers_sha256=row["headers"]["sha256"],
        version_file=Piece(*row["version-file"]),
        libraries=tuple(
            PinnedLibrary(
                name=name, symbols=Piece(*tables["symbols"]), names=Piece(*tables["names"])
            )
            for name, tables in row["libraries"].items()
        ),
        exports_sha256=row["exports"],
    )


def fetch_torch_headers(
    pinned: PinnedTorch,
    *,
    store: Path,
    variables: Mapping[str, str],
    on_fetch: OnFetch | None = None,
) -> TorchInstall:
    """Return a torch of headers and names alone; it is fetched where it is not there.

    Some 13 MB of each wheel are read: the entries of its headers, which lie together, and of its
    libraries the blocks with the tables of symbols.

    Args:
        pinned: which release.
        store: the directory of all toolchains.
        variables: the environment of pip, which names the user's package index.
        on_fetch: who is told how far it is.

    Returns:
        A torch whose root has ``include``, ``version.py`` and ``exports.txt``.

    Raises:
        ToolchainUnavailableError: pip cannot find the wheel.
        ToolchainError: it is another one than is pinned.
    """
    name = f"torch {pinned.version} (headers)"

    def make(scratch: Path) -> None:
        if on_fetch is not None:
            on_fetch(f"{name} is not here yet", 0, 0)
        wheel = WheelSpans(
            name="torch",
            version=pinned.version,
            file=pinned.file,
            sha256=pinned.wheel,
            spans=pinned.spans,
        )
        parts = fetch_spans(wheel, scratch=scratch, variables=variables, on_fetch=on_fetch)
        try:
            size = _unpack(pinned, parts, scratch / "tree")
        except (ValueError, FileExistsError) as err:
            raise ToolchainError(
                f"{name}: the wheel is not packed as this builder has pinned it ({err}); nothing of "
                "it is used"
            ) from err
        if on_fetch is not None:
            on_fetch(f"{name} is in {store / pinned.key}", size, size)

    def tell_waiting() -> None:
        if on_fetch is not None:
            on_fetch(f"{name}: another build is fetching them; waiting for it", 0, 0)

    return read_torch(keep_tree(store / pinned.key, make, on_wait=tell_waiting))


def _unpack(pinned: PinnedTorch, parts: Sequence[Part], root: Path) -> int:
    """Write what is kept, and return its bytes.

    Raises:
        ValueError: it is not what is pinned.
        FileExistsError: two headers have one name.
    """
    digests = {}
    size = 0
    for path, data in unpack_entries(read_bytes(parts, *pinned.headers), _HEADERS):
        digests[path] = hashlib.sha256(data).hexdigest()
        size += len(data)
        place = root / PurePosixPath(path).relative_to("torch")
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as stream:
            stream.write(data)
    _compare("its headers", hash_listing(digests), pinned.headers_sha256)
    exports = list_exports(pinned, parts)
    _compare("its list of exports", hashlib.sha256(exports).hexdigest(), pinned.exports_sha256)
    (root / _EXPORTS).write_bytes(exports)
    version = unpack_piece(parts, pinned.version_file)
    (root / "version.py").write_bytes(version)
    return size + len(exports) + len(version)


def _compare(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise ValueError(f"{what} have sha256 {found}, expected {expected}")


def hash_listing(digests: Mapping[str, str]) -> str:
    """Return one hash of files: of the lines ``sha256␣␣path``, sorted by path.

    Args:
        digests: the sha256 of each, by path.
    """
    lines = (f"{digests[path]}  {path}\n" for path in sorted(digests))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def list_exports(pinned: PinnedTorch, parts: Sequence[Part]) -> bytes:
    """Return the names that its libraries define, sorted, one a line.

    Raises:
        ValueError: a table of a library is not in these parts, or damaged.
    """
    names: set[str] = set()
    for each in pinned.libraries:
        symbols, texts = unpack_piece(parts, each.symbols), unpack_piece(parts, each.names)
        names |= list_defined(symbols, texts)
    return "".join(f"{name}\n" for name in sorted(names)).encode("ascii")


def read_pinned_exports(install: TorchInstall) -> frozenset[str]:
    """Return the names that the libraries of a fetched release define."""
    return frozenset((install.root / _EXPORTS).read_text("ascii").splitlines())
