"""Verifies installed variants before anything of them is executed.

An installed variant is ``variants/<digest>/``::

    <variant>/      the files
    manifest.json   path, size and sha256 of each file; its lines hash to <digest>
    receipt.json    size and time of change of each file when it was last hashed

A file whose size and time stand in the receipt is not hashed again. That finds accidents; whoever
may write to the cache can forge a size and a time, and so owns what is loaded from it. Python source
is in any case hashed as it is run (kernels.importer); for the rest ``verify_bytes`` hashes all. The
receipt of a cache that cannot be written is kept in the user's state directory.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_spec.digest import Violation, variant_digest
from kernel_spec.document import UNREADABLE, read_plain
from kernel_spec.errors import FormatError
from kernel_spec.metadata import FILE_NAME, parse_metadata
from kernel_spec.names import path_fault
from kernel_spec.wire import TreeFile
from kernels.errors import CacheError
from kernels.in_use import MANIFEST_NAME, mark_used
from kernels.store import Store, find_digest, write_whole
from kernels.variant_dir import VariantDir, hash_file

RECEIPT_NAME = "receipt.json"
FORMAT = 1

# What stands in a place where nothing can be read is in no case a file whose bytes may be right.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

# size in bytes and time of the last change in nanoseconds, by path
Receipt = dict[str, tuple[int, int]]


class Manifest(NamedTuple):
    """What an installed variant consists of: its name, and size and sha256 by path."""

    variant: str
    files: Mapping[str, tuple[int, str]]


class Damage(NamedTuple):
    """Why an installed variant cannot be used: each file and what is wrong with it.

    Attributes:
        path: where it is.
        faults: for each file, its path in there and what is wrong.
        unread: whether all that is wrong is that this user, or the system, cannot read it now.
    """

    path: Path
    faults: tuple[str, ...]
    unread: bool = False

    @property
    def kind(self) -> str:
        """What to call it: ``damaged`` or ``unreadable``."""
        return "unreadable" if self.unread else "damaged"

    def __str__(self) -> str:
        return "\n".join(f"  {self.path / fault}" for fault in self.faults)


def verify_installed(place: Path, state: Path) -> VariantDir | Damage | None:
    """Verify the variant in ``variants/<digest>``, which is then marked as used by this process.

    Args:
        place: that directory.
        state: the user's state directory, for receipts where ``place`` cannot be written.

    Returns:
        The verified variant, what is wrong with it, or None where nothing is installed.

    Raises:
        CacheError: what is installed cannot be read now, and may be right.
    """
    if not _is_folder(place):
        return None
    mark_used(place)
    manifest = read_manifest(place)
    if isinstance(manifest, Damage):
        # None where it was removed while this process looked.
        return _require_read(place, manifest) if _is_folder(place) else None
    root = place / manifest.variant
    seen = _compare(root, manifest, _read_receipts(place, state))
    if isinstance(seen, Damage):
        return _require_read(place, seen)
    if seen is not None:
        _keep_receipt(place, state, seen)
    try:
        metadata = parse_metadata(read_plain(root / FILE_NAME))
    except OSError as err:
        return _require_read(place, _unread_damage(root, FILE_NAME, err))
    except FormatError as err:
        return Damage(root, (f"{FILE_NAME}: {err}",))
    return VariantDir(
        path=root,
        metadata=metadata,
        digest=place.name,
        sha256={path: sha256 for path, (_, sha256) in manifest.files.items()},
    )


def _is_folder(place: Path) -> bool:
    try:
        return stat.S_ISDIR(place.stat().st_mode)
    except OSError as err:
        if err.errno in _ABSENT:
            return False
        raise CacheError(place, err) from None


def _require_read(place: Path, damage: Damage) -> Damage:
    if not damage.unread:
        return damage
    raise CacheError(
        damage.path,
        OSError("what is installed there cannot be read, and may be right"),
        advice=f"Found:\n{damage}\nLet this user read it, or set KERNELS_CACHE to another directory. "
        f"Where the disk is at fault, move {place} away: it is fetched again.",
    )


def verify_bytes(place: Path) -> Damage | None:
    """Hash every file of the variant in ``variants/<digest>``, whatever its receipt says."""
    manifest = read_manifest(place)
    if isinstance(manifest, Damage):
        return manifest
    found = _compare(place / manifest.variant, manifest, [])
    return found if isinstance(found, Damage) else None


def find_installed(
    store: Store, files: Sequence[TreeFile], state: Path
) -> VariantDir | Damage | None:
    """Return the installed and verified variant with these files, its damage, or None."""
    digest = find_digest(store, files)
    if digest is None:
        return None
    return verify_installed(store.folder("variants") / digest, state)


def read_manifest(place: Path) -> Manifest | Damage:
    """Read a manifest, or say why it cannot be used: it is not there, or hashes to another name."""
    path = place / MANIFEST_NAME
    mismatch = Damage(place, (f"{MANIFEST_NAME}: {Violation.MISMATCH}",))
    try:
        data = read_plain(path)
    except FileNotFoundError:
        return mismatch
    except OSError as err:
        # What stands there and is no file is damage; a file that is refused may be right.
        return _unread_damage(place, MANIFEST_NAME, err) if _may_be_file(path) else mismatch
    try:
        document = json.loads(data)
        files = {str(p): (int(size), str(sha)) for p, size, sha in document["files"]}
        variant = str(document["variant"])
        digest = variant_digest((path, size, sha) for path, (size, sha) in sorted(files.items()))
    except UNREADABLE:
        return mismatch
    if digest != place.name or "/" in variant or path_fault(variant) is not None:
        return mismatch
    return Manifest(variant, files)


def _may_be_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError as err:
        return err.errno not in _ABSENT


def _unread_damage(place: Path, path: str, err: OSError) -> Damage:
    if err.errno in _ABSENT:
        return Damage(place, (f"{path}: {Violation.MISSING}",))
    return Damage(place, (f"{path}: cannot be read: {err.strerror or err}",), unread=True)


def format_manifest(manifest: Manifest) -> bytes:
    """Write a manifest."""
    files = [[path, size, sha] for path, (size, sha) in sorted(manifest.files.items())]
    document = {"format": FORMAT, "variant": manifest.variant, "files": files}
    return json.dumps(document, indent=1).encode() + b"\n"


def format_receipt(receipt: Receipt) -> bytes:
    """Write a receipt."""
    files = {path: list(entry) for path, entry in sorted(receipt.items())}
    return json.dumps({"format": FORMAT, "files": files}).encode() + b"\n"


def scan(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the POSIX path and ``lstat`` of everything below a directory but bytecode."""
    stack = [(root, "")]
    while stack:
        directory, prefix = stack.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode):
                    if entry.name != "__pycache__":
                        stack.append((Path(entry.path), f"{path}/"))
                elif not entry.name.endswith(".pyc"):
                    yield path, facts


def _compare(root: Path, manifest: Manifest, receipts: list[Receipt]) -> Damage | Receipt | None:
    """Return what is wrong, or the new receipt where a file had to be hashed again."""
    try:
        found = dict(scan(root))
    except OSError as err:
        return _unread_damage(root.parent, root.name, err)
    faults = [f"{path}: {Violation.MISSING}" for path in manifest.files if path not in found]
    unread: list[str] = []
    seen: Receipt = {}
    hashed = False
    for path, facts in sorted(found.items()):
        expected = manifest.files.get(path)
        entry = (facts.st_size, facts.st_mtime_ns)
        if expected is None:
            faults.append(f"{path}: {Violation.UNKNOWN}")
        elif not stat.S_ISREG(facts.st_mode) or facts.st_size != expected[0]:
            faults.append(f"{path}: {Violation.MISMATCH}")
        elif all(receipt.get(path) != entry for receipt in receipts):
            hashed = True
            try:
                if hash_file(root / path) != expected[1]:
                    faults.append(f"{path}: {Violation.MISMATCH}")
            except OSError as err:
                fault = _unread_damage(root, path, err)
                (unread if fault.unread else faults).extend(fault.faults)
        seen[path] = entry
    if faults or unread:
        return Damage(root, (*faults, *unread), unread=not faults)
    return seen if hashed else None


def _read_receipts(place: Path, state: Path) -> list[Receipt]:
    receipts = []
    for path in (place / RECEIPT_NAME, _state_path(place, state)):
        try:
            files = json.loads(read_plain(path))["files"]
            receipts.append({str(p): (int(size), int(time)) for p, (size, time) in files.items()})
        except UNREADABLE:
            continue
    return receipts


def _keep_receipt(place: Path, state: Path, receipt: Receipt) -> None:
    for path in (place / RECEIPT_NAME, _state_path(place, state)):
        try:
            write_whole(path, format_receipt(receipt))
        except OSError:
            continue
        return


def _state_path(place: Path, state: Path) -> Path:
    import hashlib

    where = hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:16]
    return state / "receipts" / f"{place.name[:16]}-{where}.json"
