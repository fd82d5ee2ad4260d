"""Brings a variant into the cache: downloads it once per host, verified while it streams, whole or not at all.

The bytes go to a directory below ``tmp/``; every file is hashed as it arrives and flushed to
disk; then one rename makes the variant appear. One operating-system lock per variant lets the
first process work and the others wait; it vanishes with the process that held it, and the next
holder clears away what an interrupted one left.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from kernel_spec.digest import variant_digest
from kernel_spec.errors import IntegrityError
from kernel_spec.held import try_hold
from kernel_spec.metadata import FILE_NAME, parse_metadata
from kernel_spec.names import parse_safe_path
from kernel_spec.whole_file import fsync_folder
from kernels.fetch import Wanted
from kernels.in_use import MANIFEST_NAME, mark_used
from kernels.log import logger
from kernels.receive import download, write_flushed, writing
from kernels.store import Store, listing_key, write_index
from kernels.variant_dir import VariantDir, verify_own_digest
from kernels.verify import (
    RECEIPT_NAME,
    Damage,
    Manifest,
    find_installed,
    format_manifest,
    format_receipt,
    scan,
    verify_installed,
)

QUIET_WAIT_SECONDS = 3.0


def install(
    store: Store, wanted: Wanted, state: Path, *, have: Mapping[str, bytes] | None = None
) -> VariantDir:
    """Install a variant, or return the one that is installed and verified.

    Args:
        store: the cache.
        wanted: what to install.
        state: the user's state directory, for receipts.
        have: verified bytes of files that were fetched already, by path.

    Raises:
        CacheError: the cache cannot be written, or what is installed cannot be read.
        FormatError: the listing has a path that is not allowed.
        HubUnreachableError: the hub went away.
        IntegrityError: the hub sent other bytes than it or the variant's metadata promised.
    """
    for file in wanted.files:
        parse_safe_path(file.path)
    with hold(store, listing_key(wanted.files), f"installs {wanted}") as key:
        found = find_installed(store, wanted.files, state)
        if isinstance(found, VariantDir):
            return found
        if isinstance(found, Damage):
            _discard(store, key, found)
        digest = _install_locked(store, key, wanted, have or {})
    return _installed(store.folder("variants") / digest, state, str(wanted))


def adopt(store: Store, variant: VariantDir, state: Path) -> VariantDir:
    """Copy a verified variant that was built on this machine into the cache.

    Args:
        store: the cache.
        variant: the variant, anywhere on this disk.
        state: the user's state directory, for receipts.

    Raises:
        CacheError: the cache cannot be written, or what is installed cannot be read.
        IntegrityError: its files changed while they were copied.
    """
    target = store.folder("variants") / variant.digest
    with hold(store, variant.digest, f"installs {variant.path.name}") as key:
        found = verify_installed(target, state)
        if isinstance(found, VariantDir):
            return found
        if isinstance(found, Damage):
            _discard(store, key, found)
        with begin_install(store, key) as place, writing(place):
            root = place / variant.path.name
            sizes = {}
            for path, sha256 in variant.sha256.items():
                data = (variant.path / path).read_bytes()
                if hashlib.sha256(data).hexdigest() != sha256:
                    raise IntegrityError(f"{variant.path / path} changed while it was installed.")
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                write_flushed(root / path, [data])
                sizes[path] = len(data)
            files = {path: (size, variant.sha256[path]) for path, size in sizes.items()}
            _appear(store, place, root, Manifest(root.name, files), variant.digest)
    return _installed(target, state, variant.path.name)


def _installed(target: Path, state: Path, what: str) -> VariantDir:
    match verify_installed(target, state):
        case VariantDir() as variant:
            return variant
        case other:
            raise IntegrityError(f"{what} was changed while it was installed:\n{other}")


@contextmanager
def begin_install(store: Store, key: str, name: str | None = None) -> Iterator[Path]:
    """Give a new folder below ``tmp/``, which goes at the end; clear away what killed processes left.

    Args:
        store: the cache.
        key: the lock that the caller holds.
        name: what the folder is called, after the key, where it must be the same each time.

    Raises:
        CacheError: the cache cannot be written.
    """
    temporary = store.folder("tmp")
    with writing(temporary):
        temporary.mkdir(parents=True, exist_ok=True)
        _sweep(store, key)
        if name is None:
            place = Path(tempfile.mkdtemp(prefix=f"{key[:32]}-", dir=temporary))
        else:
            place = temporary / f"{key[:32]}-{name}"
            place.mkdir()
        place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _install_locked(store: Store, key: str, wanted: Wanted, have: Mapping[str, bytes]) -> str:
    with begin_install(store, key) as place:
        root = place / wanted.variant
        with writing(root):
            root.mkdir()
        sha256 = download(wanted, root, have)
        metadata = parse_metadata((root / FILE_NAME).read_bytes())
        verify_own_digest(root, metadata, sha256)
        sizes = {file.path: file.size for file in wanted.files}
        manifest = Manifest(
            wanted.variant, {path: (sizes[path], sha) for path, sha in sha256.items()}
        )
        digest = variant_digest((path, sizes[path], sha) for path, sha in sorted(sha256.items()))
        with writing(place):
            _appear(store, place, root, manifest, digest)
        write_index(store, wanted.files, digest)
    return digest


def _sweep(store: Store, key: str) -> None:
    """Clear away what killed processes left in ``tmp/``."""
    for leftover in store.folder("tmp").iterdir():
        if leftover.name.partition("-")[0] == key[:32]:
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            sweep_leftover(store, leftover)


def sweep_leftover(store: Store, leftover: Path) -> bool:
    """Remove something in ``tmp/``, unless a process still works there; say whether it is gone."""
    # Whoever installs holds the lock of that name until its folder is gone.
    owner = leftover.name.partition("-")[0]
    with try_hold(_lock_path(store, owner)) as free:
        if free:
            shutil.rmtree(leftover, ignore_errors=True)
    return not leftover.exists()


def find_leftovers(store: Store) -> list[Path]:
    """List what is in ``tmp/`` and belongs to no lock that is held; writes nothing."""
    folder = store.folder("tmp")
    return (
        [path for path in folder.iterdir() if not _is_held(store, path)] if folder.is_dir() else []
    )


def _is_held(store: Store, leftover: Path) -> bool:
    lock = _lock_path(store, leftover.name.partition("-")[0])
    if not lock.exists():
        return False
    with try_hold(lock) as free:
        return not free


def _lock_path(store: Store, key: str) -> Path:
    return store.folder("locks") / f"{key[:32]}.lock"


def _appear(store: Store, place: Path, root: Path, manifest: Manifest, digest: str) -> None:
    receipt = {path: (facts.st_size, facts.st_mtime_ns) for path, facts in scan(root)}
    write_flushed(place / MANIFEST_NAME, [format_manifest(manifest)])
    write_flushed(place / RECEIPT_NAME, [format_receipt(receipt)])
    for directory in [path for path in root.rglob("*") if path.is_dir()]:
        fsync_folder(directory)
    fsync_folder(root)
    fsync_folder(place)
    target = store.folder("variants") / digest
    target.parent.mkdir(parents=True, exist_ok=True)
    mark_used(place, target)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        # No variant, and in the way of one.
        target.unlink()
    try:
        place.rename(target)
    except OSError:
        # Equal content under another listing was installed meanwhile.
        if not target.is_dir():
            raise
    fsync_folder(target.parent)


def _discard(store: Store, key: str, damage: Damage) -> None:
    """Take a damaged variant away."""
    variants = store.folder("variants")
    place = variants / damage.path.relative_to(variants).parts[0]
    with writing(place):
        take_away(store, place, key)


def take_away(store: Store, place: Path, key: str) -> Path:
    """Move a variant out of ``variants/`` in one step, so that no load sees a part of it, and remove it there.

    Args:
        store: the cache.
        place: ``variants/<digest>``.
        key: the lock that the caller holds, or the digest.

    Returns:
        The folder below ``tmp/`` that it went to, which is there still where it could not be emptied.

    Raises:
        OSError: it could not be moved, and is where it was.
    """
    aside = Path(tempfile.mkdtemp(prefix=f"{key[:32]}-", dir=_made(store.folder("tmp"))))
    try:
        place.rename(aside / place.name)
    except OSError:
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)
    return aside


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def hold(store: Store, key: str, what: str) -> Iterator[str]:
    """Hold the lock of one variant; say so where another process holds it for long.

    Args:
        store: the cache.
        key: what the lock is named by: a hex hash.
        what: what the other process does, as in "waiting for another process that ...".

    Raises:
        CacheError: the cache cannot be written.
    """
    path = _lock_path(store, key)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=QUIET_WAIT_SECONDS)
        except Timeout:
            logger().warning("waiting for another process that %s", what)
            lock.acquire()
    try:
        yield key
    finally:
        lock.release()
