"""The pinned releases of torch: of each wheel, the bytes that hold its headers and the names it defines."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kernel_builder.toolchain.packed import Piece
from kernel_builder.toolchain.wheel_parts import Span
from kernel_spec.version import MajorMinor, parse_major_minor


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
