"""Headers and export lists of pinned torch releases: fetched without the rest of torch, and kept."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from kernel_builder.errors import ToolchainError
from kernel_builder.kept import keep_tree
from kernel_builder.toolchain.packed import (
    Part,
    list_defined,
    read_bytes,
    unpack_entries,
    unpack_piece,
)
from kernel_builder.toolchain.pip_watch import OnFetch
from kernel_builder.toolchain.torch import TorchInstall, read_torch
from kernel_builder.toolchain.torch_releases import PinnedTorch
from kernel_builder.toolchain.wheel_parts import WheelSpans, fetch_spans

_HEADERS = "torch/include"
_EXPORTS = "exports.txt"


def name_headers(pinned: PinnedTorch) -> str:
    """Return what people call the headers of a release, with the processor where that is another one."""
    other = "" if pinned.machine == platform.machine() else f", {pinned.machine}"
    return f"torch {pinned.version} (headers{other})"


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
    name = name_headers(pinned)

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
