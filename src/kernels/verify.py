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

# size in bytes and time of the last change in nanoseconds, by path
Receipt = dict[str, tuple[int, int]]


class Manifest(NamedTuple):
    """What an installed variant consists of: its name, and size and sha256 by path."""

    variant: str
    files: Mapping[str, tuple[int, str]]


class Damage(NamedTuple):
    """Why an installed variant cannot be used: each file and what is wrong with it."""

    path: Path
    faults: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(f"  {self.path / fault}" for fault in self.faults)


def verify_installed(place: Path, state: Path) -> VariantDir | Damage | None:
    """Verify the variant in ``variants/<digest>``, which is then marked as used by this process.

    Args:
        place: that directory.
        state: the user's state directory, for receipts where ``place`` cannot be written.

    Returns:
        The verified variant, what is wrong with it, or None where nothing is installed.
    """
    try:
        if not place.is_dir():
            return None
    except OSError as err:
        raise CacheError(place, err) from None
    mark_used(place)
    manifest = read_manifest(place)
    if manifest is None:
        if not place.is_dir():
            # It was removed while this process looked.
            return None
        return Damage(place, (f"{MANIFEST_NAME}: {Violation.MISMATCH}",))
    root = place / manifest.variant
    faults, seen = _compare(root, manifest, _read_receipts(place, state))
    if faults:
        return Damage(root, tuple(faults))
    if seen is not None:
        _keep_receipt(place, state, seen)
    try:
        metadata = parse_metadata((root / FILE_NAME).read_bytes())
    except (OSError, FormatError) as err:
        return Damage(root, (f"{FILE_NAME}: {err}",))
    return VariantDir(
        path=root,
        metadata=metadata,
        digest=place.name,
        sha256={path: sha256 for path, (_, sha256) in manifest.files.items()},
    )


def verify_bytes(place: Path) -> Damage | None:
    """Hash every file of the variant in ``variants/<digest>``, whatever its receipt says."""
    manifest = read_manifest(place)
    if manifest is None:
        return Damage(place, (f"{MANIFEST_NAME}: {Violation.MISMATCH}",))
    root = place / manifest.variant
    faults, _ = _compare(root, manifest, [])
    return Damage(root, tuple(faults)) if faults else None


def find_installed(
    store: Store, files: Sequence[TreeFile], state: Path
) -> VariantDir | Damage | None:
    """Return the installed and verified variant with these files, its damage, or None."""
    digest = find_digest(store, files)
    if digest is None:
        return None
    return verify_installed(store.folder("variants") / digest, state)


def read_manifest(place: Path) -> Manifest | None:
    """Read a manifest; None where it is not there or does not hash to the directory's name."""
    try:
        document = json.loads(read_plain(place / MANIFEST_NAME))
        files = {str(p): (int(size), str(sha)) for p, size, sha in document["files"]}
        variant = str(document["variant"])
        digest = variant_digest((path, size, sha) for path, (size, sha) in sorted(files.items()))
    except UNREADABLE:
        return None
    if digest != place.name or "/" in variant or path_fault(variant) is not None:
        return None
    return Manifest(variant, files)


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


def _compare(
    root: Path, manifest: Manifest, receipts: list[Receipt]
) -> tuple[list[str], Receipt | None]:
    """Return the faults, and the new receipt where a file had to be hashed again."""
    try:
        found = dict(scan(root))
    except OSError as err:
        return [f"{err.strerror or err}"], None
    faults = [f"{path}: {Violation.MISSING}" for path in manifest.files if path not in found]
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
            if (fault := _hash_fault(root / path, expected[1])) is not None:
                faults.append(f"{path}: {fault}")
        seen[path] = entry
    return faults, seen if hashed else None


def _hash_fault(path: Path, expected: str) -> str | None:
    try:
        return None if hash_file(path) == expected else Violation.MISMATCH
    except OSError as err:
        return f"cannot be read: {err.strerror or err}"


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
