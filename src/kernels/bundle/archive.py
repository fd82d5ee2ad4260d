"""The bundle file: a plain tar of a directory hub, and ``bundle.json`` that says what it holds.

::

    bundle.json                                     first; see :class:`Packed`
    <owner>/<name>/{refs,trees,snapshots}/...       a directory hub (kernel_spec.directory)

Equal kernels give equal bytes: names are sorted, and no time, owner or host is in it. Unpacked by
``tar`` it is a hub for ``KERNELS_HUB=file://``. A bundle is not compressed, so nothing in it can grow,
and no member is written anywhere before its name, kind, size and hash are those of a listing whose hash
is the commit.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernel_spec.digest import variant_digest
from kernel_spec.directory import commit_id, encode_ref, parse_listing
from kernel_spec.document import UNREADABLE, naming, open_plain
from kernel_spec.errors import FormatError, IntegrityError
from kernel_spec.listing import COMMIT_ID, Listing
from kernel_spec.names import RepoId, commit_fault, parse_repo_id, path_fault, ref_fault
from kernel_spec.wire import TreeFile

MANIFEST_NAME = "bundle.json"
_UNFINISHED = ".bundle"
FORMAT = 1
MOST_MEMBERS = 200_000
DOCUMENT_BYTES = 64 << 20
# What stands before a member: its header, and the long name that one may have.
HEADER_BYTES = 1 << 20
_BLOCK = 1 << 20
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstandard"}


class Packed(NamedTuple):
    """A kernel in a bundle.

    Attributes:
        repo: its repository.
        hub: the URL of the hub that it came from; empty for a folder.
        commit: the commit there.
        branches: the branches that are at that commit.
        tags: the tags that are.
        listing: the commit in the bundle, which holds the chosen variants alone.
        files: every file below ``build/`` at the commit of the hub, as that lists them.
        variants: the digest of each variant in the bundle, by name.
    """

    repo: RepoId
    hub: str
    commit: str
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    listing: str
    files: tuple[TreeFile, ...]
    variants: Mapping[str, str]

    @property
    def heads(self) -> tuple[str, ...]:
        """The branches in the bundle's hub; a commit that no branch is at gets one of its own."""
        return self.branches or (f"commit-{self.commit[:12]}",)


class Member(NamedTuple):
    """A file in a bundle: where its bytes begin, and how many there are."""

    offset: int
    size: int


class Bundle(NamedTuple):
    """A bundle that was read: its names, sizes and listings hold; of its files no byte was looked at."""

    path: Path
    kernels: tuple[Packed, ...]
    listings: Mapping[str, Listing]
    members: Mapping[str, Member]

    @property
    def size(self) -> int:
        """The bytes of the kernels' files."""
        return sum(file.size for listing in self.listings.values() for file in listing.files)


def format_manifest(kernels: Sequence[Packed]) -> bytes:
    """Write ``bundle.json``; the order of the kernels does not matter."""
    entries = [
        {
            "repo_id": str(kernel.repo),
            "hub": kernel.hub,
            "commit": kernel.commit,
            "branches": sorted(kernel.branches),
            "tags": sorted(kernel.tags),
            "listing": kernel.listing,
            "variants": dict(sorted(kernel.variants.items())),
            "files": [
                [file.path, file.size, file.oid, file.sha256, file.executable]
                for file in sorted(kernel.files, key=lambda file: file.path)
            ],
        }
        for kernel in sorted(kernels, key=lambda kernel: (kernel.repo, kernel.commit))
    ]
    return json.dumps({"format": FORMAT, "kernels": entries}, indent=1).encode() + b"\n"


def write_archive(target: Path, root: Path, kernels: Sequence[Packed]) -> None:
    """Write the directory hub at ``root`` as a bundle; the file appears whole.

    Args:
        target: the file.
        root: the hub, in a folder of one's own on the file system of the target.
        kernels: what it holds.

    Raises:
        OSError: it cannot be written.
    """
    temporary = root / _UNFINISHED
    with (
        naming(target),
        temporary.open("wb") as stream,
        tarfile.open(fileobj=stream, mode="w:", format=tarfile.PAX_FORMAT) as tar,
    ):
        manifest = format_manifest(kernels)
        tar.addfile(_entry(MANIFEST_NAME, len(manifest)), io.BytesIO(manifest))
        for member in _hub_files(kernels, root):
            place = root / member
            with place.open("rb") as source:
                status = os.fstat(source.fileno())
                entry = _entry(member, status.st_size, executable=bool(status.st_mode & 0o100))
                tar.addfile(entry, source)
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    temporary.chmod(0o644)
    temporary.replace(target)


def _hub_files(kernels: Sequence[Packed], root: Path) -> list[str]:
    listings = {
        kernel.listing: parse_listing((root / _tree_path(kernel)).read_bytes())
        for kernel in kernels
    }
    return sorted(_expected(kernels, listings))


def _entry(name: str, size: int, *, executable: bool = False) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o755 if executable else 0o644
    return entry


def _tree_path(kernel: Packed) -> str:
    return f"{kernel.repo}/trees/{kernel.listing}.json"


def snapshot_path(kernel: Packed, path: str) -> str:
    """Return the member that holds a file of a kernel."""
    return f"{kernel.repo}/snapshots/{kernel.listing}/{path}"


def _expected(kernels: Sequence[Packed], listings: Mapping[str, Listing]) -> dict[str, int]:
    """Return the size of every member that a bundle of these kernels has beside its manifest."""
    members = {}
    for kernel in kernels:
        refs = [f"heads/{encode_ref(name)}" for name in kernel.heads]
        refs += [f"tags/{encode_ref(name)}" for name in kernel.tags]
        members.update({f"{kernel.repo}/refs/{name}": len(kernel.listing) + 1 for name in refs})
        members[_tree_path(kernel)] = -1
        members.update(
            {snapshot_path(kernel, f.path): f.size for f in listings[kernel.listing].files}
        )
    return members


def read_bundle(path: Path) -> Bundle:
    """Read a bundle's manifest and listings, and check the names and sizes of all that is in it.

    Raises:
        FormatError: it is not a bundle, with every fault that was found.
        IntegrityError: a listing does not hash to its commit, or a variant to its digest.
        OSError: it cannot be read.
    """
    members = _read_members(path)
    if next(iter(members), None) != MANIFEST_NAME:
        raise FormatError(f"{path}: not a bundle: its first member is not {MANIFEST_NAME}")
    kernels = _parse_manifest(path, _read_document(path, MANIFEST_NAME, members))
    listings = {}
    for kernel in kernels:
        data = _read_document(path, _tree_path(kernel), members)
        if commit_id(data) != kernel.listing:
            raise IntegrityError(f"{path}: {_tree_path(kernel)}: its bytes were changed")
        listings[kernel.listing] = parse_listing(data)
    _check_members(path, members, _expected(kernels, listings))
    for kernel in kernels:
        _check_refs(path, kernel, members)
        _check_kernel(path, kernel, listings[kernel.listing])
    return Bundle(path, kernels, listings, members)


def verify_files(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """Hash every file of a bundle; yield the member and the fault of each that differs."""
    for kernel in bundle.kernels:
        for file in bundle.listings[kernel.listing].files:
            name = snapshot_path(kernel, file.path)
            sha256 = hashlib.sha256()
            for block in read_member(bundle, name):
                sha256.update(block)
            if sha256.hexdigest() != file.sha256:
                yield name, f"expected sha256 {file.sha256}, found {sha256.hexdigest()}"


def read_member(bundle: Bundle, name: str) -> Iterator[bytes]:
    """Yield the bytes of a member, unverified; any number of threads may read at once."""
    member = bundle.members[name]
    with open_plain(bundle.path) as stream:
        stream.seek(member.offset)
        left = member.size
        while left and (block := stream.read(min(left, _BLOCK))):
            left -= len(block)
            yield block


class _Bounded(io.RawIOBase):
    """A tar's bytes for :mod:`tarfile`, which would make room for whatever a header says it has."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        """Read from the file.

        Raises:
            tarfile.ReadError: more is asked for than any header has.
        """
        if not 0 <= size <= HEADER_BYTES:
            raise tarfile.ReadError(f"a header in it says that it has {size} bytes")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move in the file."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Say where in the file the next byte is."""
        return self._stream.tell()


def _read_members(path: Path) -> dict[str, Member]:
    size = path.stat().st_size
    with open_plain(path) as stream:
        compressed = _COMPRESSED.get(stream.read(2))
    if compressed:
        raise FormatError(
            f"{path}: expected a plain tar, found {compressed}; decompress it, or copy the bundle as "
            "kernels bundle create wrote it"
        )
    members: dict[str, Member] = {}
    folded: set[str] = set()
    try:
        with open_plain(path) as stream, tarfile.open(fileobj=_Bounded(stream), mode="r:") as tar:
            for entry in tar:
                fault = _member_fault(entry, size) or path_fault(entry.name)
                if fault is None and entry.name.casefold() in folded:
                    fault = "it is there twice"
                if fault is not None:
                    raise FormatError(
                        f"{path}: member {entry.name!r}: {fault}; nothing was written"
                    )
                if len(members) == MOST_MEMBERS:
                    raise FormatError(f"{path}: more than {MOST_MEMBERS} members")
                folded.add(entry.name.casefold())
                members[entry.name] = Member(entry.offset_data, entry.size)
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as err:
        if isinstance(err, FormatError):
            raise
        raise FormatError(f"{path}: not a bundle, or a damaged one: {err}") from None
    return members


def _member_fault(entry: tarfile.TarInfo, size: int) -> str | None:
    if entry.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or entry.issparse():
        return "expected a plain file, found a link, a folder, a device or a sparse file"
    if entry.size < 0 or entry.offset_data + entry.size > size:
        return f"says that it has {entry.size} bytes, which is more than the file holds"
    return None


def _read_document(path: Path, name: str, members: Mapping[str, Member]) -> bytes:
    member = members.get(name)
    if member is None:
        raise FormatError(f"{path}: {name} is missing")
    if member.size > DOCUMENT_BYTES:
        raise FormatError(
            f"{path}: {name} has {member.size} bytes, expected at most {DOCUMENT_BYTES}"
        )
    return b"".join(read_member(Bundle(path, (), {}, members), name))


def _parse_manifest(path: Path, data: bytes) -> tuple[Packed, ...]:
    try:
        document = json.loads(data)
        form = document["format"]
        kernels = tuple(_parse_kernel(entry) for entry in document["kernels"])
    except UNREADABLE as err:
        raise FormatError(f"{path}: {MANIFEST_NAME} cannot be read: {err}") from None
    if form != FORMAT:
        raise FormatError(
            f"{path}: bundle of format {form!r}; this version reads format {FORMAT}: upgrade kernels"
        )
    places = {(kernel.repo, kernel.commit) for kernel in kernels}
    if len(places) != len(kernels) or format_manifest(kernels) != data:
        raise FormatError(f"{path}: {MANIFEST_NAME} is not as this format writes it")
    return kernels


def _parse_kernel(entry: Mapping[str, Any]) -> Packed:
    files = tuple(
        TreeFile(
            path=str(name),
            size=int(size),
            oid=str(oid),
            sha256=None if sha256 is None else str(sha256),
            executable=bool(executable),
        )
        for name, size, oid, sha256, executable in entry["files"]
    )
    kernel = Packed(
        repo=parse_repo_id(entry["repo_id"]),
        hub=str(entry["hub"]),
        commit=str(entry["commit"]),
        branches=tuple(map(str, entry["branches"])),
        tags=tuple(map(str, entry["tags"])),
        listing=str(entry["listing"]),
        files=files,
        variants={str(name): str(digest) for name, digest in entry["variants"].items()},
    )
    faults = [fault for name in (*kernel.branches, *kernel.tags) if (fault := ref_fault(name))]
    faults += [fault for file in files if (fault := path_fault(file.path))]
    faults += [fault for fault in [commit_fault(kernel.commit)] if fault]
    if COMMIT_ID.fullmatch(kernel.listing) is None:
        faults.append(f"{kernel.listing!r} is no commit id")
    if faults:
        raise FormatError(f"{kernel.repo}: {'; '.join(faults)}")
    return kernel


def _check_members(path: Path, members: Mapping[str, Member], expected: Mapping[str, int]) -> None:
    found = {name for name in members if name != MANIFEST_NAME}
    faults = [f"{name}: missing" for name in expected if name not in found]
    faults += [f"{name}: no listing names it" for name in sorted(found - set(expected))]
    faults += [
        f"{name}: expected {size} bytes, found {members[name].size}"
        for name, size in expected.items()
        if name in found and size >= 0 and members[name].size != size
    ]
    if faults:
        lines = [f"{path}: not what its listings promise:", *(f"  {f}" for f in faults[:20])]
        raise FormatError("\n".join(lines))


def _check_refs(path: Path, kernel: Packed, members: Mapping[str, Member]) -> None:
    names = [f"heads/{encode_ref(n)}" for n in kernel.heads]
    for name in (*names, *(f"tags/{encode_ref(n)}" for n in kernel.tags)):
        data = _read_document(path, f"{kernel.repo}/refs/{name}", members)
        if data != f"{kernel.listing}\n".encode():
            raise IntegrityError(f"{path}: {kernel.repo}/refs/{name} is not at {kernel.listing}")


def _check_kernel(path: Path, kernel: Packed, listing: Listing) -> None:
    """See that the listing, the hub's own list of files and the digests speak of the same bytes."""
    hubs = {file.path: file for file in kernel.files}
    by_variant: dict[str, list[tuple[str, int, str]]] = {name: [] for name in kernel.variants}
    faults = []
    for file in listing.files:
        there = hubs.get(file.path)
        folder, _, rest = file.path.partition("/")
        variant, _, below = rest.partition("/")
        if folder != "build" or variant not in by_variant or there is None:
            faults.append(f"{file.path}: of no variant that the bundle names")
            continue
        by_variant[variant].append((below, file.size, str(file.sha256)))
        same = there.sha256 == file.sha256 if there.sha256 else there.oid == file.oid
        if there.size != file.size or not same:
            faults.append(f"{file.path}: not what the hub listed")
    for name, files in by_variant.items():
        if variant_digest(sorted(files)) != kernel.variants[name]:
            faults.append(f"build/{name}: its files are not those of its digest")
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults[:20])
        raise IntegrityError(f"{path}: {kernel.repo} at {kernel.commit[:12]}:\n{lines}")
