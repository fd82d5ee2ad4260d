"""The story of ``kernels lock``: what a project asks for → commits → digests of every variant.

Every kernel is locked with all that any of its variants needs, so that the lock serves every machine.
A digest is computed without downloading the variant: its metadata says the sha256 of each file, and
is itself verified against the hub's listing. Whoever installs the variant verifies all of it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kernel_spec.digest import variant_digest
from kernel_spec.errors import MetadataError, VariantNameError
from kernel_spec.lock import FILE_NAME, LockedKernel, format_lock, format_new_lock, format_old_lock
from kernel_spec.metadata import FILE_NAME as METADATA_NAME
from kernel_spec.metadata import Metadata, parse_metadata
from kernel_spec.variant import parse_variant
from kernel_spec.wire import TreeFile
from kernels import log
from kernels.errors import NotLockedError, RedirectError, RevisionNotFoundError
from kernels.fetch import Wanted, fetch_metadata, read_verified
from kernels.locked import lfs_hashes
from kernels.lockfile import describe_entry, pinned_ref, read_lock, ref_of
from kernels.project import read_dependencies
from kernels.receive import is_counted_or_named
from kernels.resolve import dependency_ref
from kernels.revision import KernelRef
from kernels.settings import Settings
from kernels.source import Located, locate, offered
from kernels.store import write_whole
from kernels.trust import Consent, require_trust

QUESTIONS_AT_ONCE = 8


class Change(NamedTuple):
    """What became of one entry: ``added``, ``kept``, ``updated`` or ``removed``."""

    kind: str
    entry: LockedKernel
    before: str | None = None

    def __str__(self) -> str:
        was = f", was {self.before[:12]}" if self.before is not None else ""
        return f"{self.kind} {describe_entry(self.entry)}{was}"


class _Variant(NamedTuple):
    name: str
    digest: str
    lfs_hash: str
    metadata: Metadata


def lock_project(
    project: Path,
    settings: Settings,
    *,
    upgrade: bool = False,
    form: str = "ours",
    consent: Consent = False,
) -> tuple[Change, ...]:
    """Write the ``kernels.lock`` of a project; it appears whole, or stays as it was.

    Args:
        project: the folder of its ``pyproject.toml``.
        settings: where the hubs are.
        upgrade: move every entry to the newest commit that the project allows; otherwise an
            entry whose request has not changed keeps its commit.
        form: ``ours``, or ``new`` or ``old`` for the published client.
        consent: to lock, and so to run, kernels of owners who are not trusted publishers.

    Returns:
        What became of each entry, sorted by repository.

    Raises:
        NotLockedError: the project asks for no kernels.
        TrustError: a publisher is not trusted.
        RedirectError: a repository has moved; the project must name its new place.
        As ``source.locate``.
    """
    path = project / FILE_NAME
    before = _entries_of(path)
    waiting = list(read_dependencies(project))
    locked: dict[KernelRef, LockedKernel] = {}
    while waiting:
        ref = waiting.pop(0)
        if ref in locked:
            continue
        known = None if upgrade else before.get(ref)
        located = _locate(ref, known, settings)
        if not located.hub.is_directory:
            require_trust(located, settings, consent, refresh=True)
        variants = _read_variants(located)
        locked[ref] = _entry(ref, located, variants)
        waiting += _needed(variants)
    entries = tuple(locked.values())
    write_whole(path, _format(entries, form))
    return _changes(before, locked)


def _format(entries: tuple[LockedKernel, ...], form: str) -> bytes:
    match form:
        case "new":
            return format_new_lock(entries)
        case "old":
            return format_old_lock(entries)
        case _:
            # The digests say all that the older hashes say.
            return format_lock(tuple(replace(entry, lfs_hashes={}) for entry in entries))


def _entries_of(path: Path) -> dict[KernelRef, LockedKernel]:
    if not path.exists():
        return {}
    return {ref_of(entry): entry for entry in read_lock(path).lock.kernels}


def _locate(ref: KernelRef, known: LockedKernel | None, settings: Settings) -> Located:
    at = ref if known is None else pinned_ref(known)
    try:
        located = locate(at, settings, refresh=known is None)
    except RevisionNotFoundError as err:
        if known is None:
            raise
        raise NotLockedError(
            str(ref.repo), f"{err} It was locked before; move on with: kernels lock --upgrade"
        ) from None
    if located.moved:
        raise RedirectError(
            str(ref.repo),
            f"{ref.repo} has moved to {located.ref.repo}: name that in pyproject.toml.",
        )
    return located


def _entry(ref: KernelRef, located: Located, variants: Collection[_Variant]) -> LockedKernel:
    return LockedKernel(
        repo_id=str(ref.repo),
        commit=located.commit,
        version=ref.version,
        version_range=ref.version_range,
        revision=ref.revision,
        variants={variant.name: variant.digest for variant in variants},
        # A directory hub does not say which of its files git would keep as pointers.
        lfs_hashes={}
        if located.hub.is_directory
        else {variant.name: variant.lfs_hash for variant in variants},
    )


def _read_variants(located: Located) -> list[_Variant]:
    wanted = [each for name, each in offered(located).items() if _is_known(name, located)]
    with ThreadPoolExecutor(QUESTIONS_AT_ONCE, thread_name_prefix="kernels-lock") as pool:
        found = [variant for variant in pool.map(_read_variant, wanted) if variant is not None]
    if not found:
        raise NotLockedError(
            str(located.ref.repo), f"{located.ref} has no build variants that this client knows."
        )
    return found


def _is_known(name: str, located: Located) -> bool:
    try:
        parse_variant(name)
    except VariantNameError as err:
        log.logger().warning("%s: %s is not locked: %s", located.ref, name, err)
        return False
    return True


def _read_variant(wanted: Wanted) -> _Variant | None:
    """Return the digest of a variant; None, with a warning, where its metadata cannot be used."""
    data = fetch_metadata(wanted)
    if data is None:
        log.logger().warning("%s is not locked: it has no %s", wanted, METADATA_NAME)
        return None
    try:
        metadata = parse_metadata(data)
    except MetadataError as err:
        log.logger().warning("%s is not locked: %s", wanted, err)
        return None
    files = tuple(file for file in wanted.files if is_counted_or_named(file.path))
    promised = _promised_sha256(metadata)
    rows = [
        (file.path, file.size, file.sha256 or _sha256_of(wanted, file, data, promised))
        for file in sorted(files, key=lambda file: file.path)
    ]
    return _Variant(wanted.variant, variant_digest(rows), lfs_hashes(wanted.files)[0], metadata)


def _promised_sha256(metadata: Metadata) -> dict[str, str]:
    import base64

    if metadata.digest is None or metadata.digest.algorithm != "sha256":
        return {}
    return {path: base64.b64decode(text).hex() for path, text in metadata.digest.files.items()}


def _sha256_of(wanted: Wanted, file: TreeFile, metadata: bytes, promised: dict[str, str]) -> str:
    import hashlib

    if file.path == METADATA_NAME:
        return hashlib.sha256(metadata).hexdigest()
    if (known := promised.get(file.path)) is not None:
        return known
    whole = hashlib.sha256()
    for chunk in read_verified(wanted, file):
        whole.update(chunk)
    return whole.hexdigest()


def _needed(variants: Iterable[_Variant]) -> list[KernelRef]:
    return [
        dependency_ref(dependency)
        for variant in variants
        for dependency in variant.metadata.kernel_depends
    ]


def _changes(
    before: dict[KernelRef, LockedKernel], after: dict[KernelRef, LockedKernel]
) -> tuple[Change, ...]:
    changes = []
    for ref, entry in after.items():
        known = before.get(ref)
        if known is None:
            changes.append(Change("added", entry))
        elif known.commit == entry.commit:
            changes.append(Change("kept", entry))
        else:
            changes.append(Change("updated", entry, known.commit))
    changes += [Change("removed", entry) for ref, entry in before.items() if ref not in after]
    return tuple(sorted(changes, key=lambda change: (change.entry.repo_id, str(change))))
