"""Archives of headers: fetched once, checked by hash, and only what is asked for unpacked."""

from __future__ import annotations

import errno
import hashlib
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from kernel_builder.errors import ArchiveError
from kernel_builder.kept import keep_tree
from kernel_spec.document import naming

_SECONDS = 60
_CHUNK = 1 << 20
# Beyond these an archive is no set of headers, and would fill the disk.
LARGEST_ARCHIVE = 2_000_000_000
LARGEST_TREE = 2_000_000_000
MOST_FILES = 200_000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class ArchiveStore:
    """The archives and what was unpacked of them, at a directory."""

    root: Path

    def archive(self, sha256: str) -> Path:
        """Return where the archive of this hash lies, if it is there."""
        return self.root / "archives" / sha256

    def tree(self, sha256: str, include: Iterable[str]) -> Path:
        """Return where these directories of the archive lie unpacked, if they are there."""
        key = hashlib.sha256("\n".join((sha256, *include)).encode()).hexdigest()
        return self.root / "trees" / key[:32]


@dataclass(frozen=True, slots=True)
class _Member:
    """A file of an archive: its path, whether it is anything but a plain file, and its bytes."""

    path: str
    is_plain: bool
    open: Callable[[], IO[bytes]]


def fetch_tree(
    store: ArchiveStore,
    sha256: str,
    include: tuple[str, ...],
    *,
    name: str,
    get: Callable[[Path], None],
) -> Path:
    """Return the directory with the unpacked headers of an archive; both are kept.

    Args:
        store: where archives are kept.
        sha256: the hash of the archive, hex.
        include: the directories of the archive that are unpacked; ``.`` is all of it.
        name: how messages call it.
        get: puts the archive at a path; called where it is not kept yet.

    Raises:
        ArchiveError: it cannot be had, is another file than expected, or holds what is unsafe.
    """
    tree = store.tree(sha256, include)
    place = store.archive(sha256)

    def make(scratch: Path) -> None:
        if not place.is_file() or hash_file(place) != sha256:
            fresh = scratch / "archive"
            get(fresh)
            found = hash_file(fresh)
            if found != sha256:
                raise ArchiveError(
                    f"{name}: the archive has another hash than build.toml or this builder "
                    f"says: found sha256 {found}, expected {sha256}; nothing of it is used. "
                    "Find out why it changed before you write another hash"
                )
            place.parent.mkdir(parents=True, exist_ok=True)
            fresh.replace(place)
        (scratch / "tree").mkdir()
        unpack(place, include, scratch / "tree", name=name)

    return keep_tree(tree, make)


def download(url: str, target: Path, *, name: str) -> None:
    """Fetch a file over HTTP or HTTPS.

    Raises:
        ArchiveError: it cannot be had, or is larger than any archive of headers.
        OSError: there is no room for it.
    """
    from http.client import HTTPException
    from urllib.request import urlopen

    size = 0
    try:
        # read_header_sources lets http and https through alone.
        with urlopen(url, timeout=_SECONDS) as answer, target.open("wb") as stream:
            while chunk := answer.read(_CHUNK):
                size += len(chunk)
                if size > LARGEST_ARCHIVE:
                    raise ArchiveError(f"{name}: {url} is larger than {LARGEST_ARCHIVE} bytes")
                with naming(target):
                    stream.write(chunk)
            if answer.length:
                raise ConnectionError(f"it broke off with {answer.length} bytes to come")
    except (HTTPException, OSError, ValueError) as err:
        if isinstance(err, OSError) and err.errno in _NO_ROOM:
            raise
        said = str(getattr(err, "reason", None) or err)
        reason = " ".join(said.split()) or type(err).__name__
        raise ArchiveError(
            f"{name}: {url} cannot be fetched ({reason}); run kernel-builder fetch once where there "
            f"is a network, or fetch the file by other means and give it: --source {name}=FILE"
        ) from err


def unpack(archive: Path, include: tuple[str, ...], target: Path, *, name: str) -> None:
    """Unpack the files below some directories of a tar or zip archive (a wheel is one).

    Raises:
        ArchiveError: it is no such archive, has no such directory, or holds a link, a device, a
            path that leads out, or more than headers ever need, among what is asked for.
    """
    faults: list[str] = []
    seen: set[str] = set()
    size = 0
    try:
        for member in _members(archive):
            wanted = _find_include(member.path, include)
            if wanted is None:
                continue
            fault = _judge(member)
            if fault is not None:
                faults.append(fault)
                continue
            seen.add(wanted)
            if faults:
                continue
            place = target / member.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with member.open() as source, place.open("xb") as stream:
                size += _copy(source, stream, LARGEST_TREE - size)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, ValueError) as err:
        raise ArchiveError(f"{name}: {archive} cannot be unpacked ({err})") from err
    faults += [f"it has no directory {path!r}" for path in include if path not in seen]
    if faults:
        shown = faults[:10] + ([f"and {len(faults) - 10} more"] if len(faults) > 10 else [])
        raise ArchiveError(
            f"{name}: the archive cannot be used:\n" + "\n".join(f"  {each}" for each in shown)
        )


def _members(archive: Path) -> Iterator[_Member]:
    """Yield the files of an archive, directories left out.

    Raises:
        ValueError: it is neither a tar nor a zip archive, or has too many files.
    """
    is_zip = zipfile.is_zipfile(archive)
    for count, member in enumerate(_zip_members(archive) if is_zip else _tar_members(archive), 1):
        if count > MOST_FILES:
            raise ValueError(f"more than {MOST_FILES} files")
        yield member


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            if info.is_dir():
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            is_plain = kind in (0, stat.S_IFREG)
            yield _Member(info.filename, is_plain, partial(file.open, info))


def _tar_members(archive: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as file:
        for info in file:
            if info.isdir():
                continue
            yield _Member(info.name, info.isreg(), partial(_open, file, info))


def _open(file: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    found = file.extractfile(info)
    if found is None:
        raise ValueError(f"{info.name} has no bytes")
    return found


def _find_include(path: str, include: tuple[str, ...]) -> str | None:
    """Return the directory among those asked for that a file is below, or None."""
    parts = PurePosixPath(path).parts
    for directory in include:
        wanted = PurePosixPath(directory).parts
        if len(parts) > len(wanted) and parts[: len(wanted)] == wanted:
            return directory
    return None


def _judge(member: _Member) -> str | None:
    """Say why a file must not be unpacked, or None."""
    path = PurePosixPath(member.path)
    if path.is_absolute() or ".." in path.parts or "\\" in member.path or "\0" in member.path:
        return f"{member.path!r} leads out of it"
    if not member.is_plain:
        return f"{member.path!r} is a link or a device, and only plain files are unpacked"
    return None


def _copy(source: IO[bytes], target: IO[bytes], room: int) -> int:
    size = 0
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        if size > room:
            raise ValueError(f"it unpacks to more than {LARGEST_TREE} bytes")
        target.write(chunk)
    return size


def copy_archive(source: Path, target: Path, *, name: str) -> None:
    """Take an archive that the user has.

    Raises:
        ArchiveError: it cannot be read.
    """
    try:
        shutil.copyfile(source, target)
    except OSError as err:
        raise ArchiveError(f"{name}: {source} cannot be read ({err.strerror})") from err


def hash_file(path: Path) -> str:
    """Return the sha256 of a file, hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_tree(root: Path, directories: Iterable[str]) -> str:
    """Return one hash of the files below some directories: of their paths and bytes.

    Raises:
        OSError: one cannot be read.
    """
    digest = hashlib.sha256()
    for directory in directories:
        for path in sorted((root / directory).rglob("*")):
            if path.is_file():
                name = path.relative_to(root).as_posix()
                digest.update(f"{hash_file(path)}  {name}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
