"""Finds kernels as a lock says: the commit that it names, and the very bytes where it names those.

A variant whose digest stands in the lock is taken from the cache by that digest, whichever hub it
came from, without a record and without a network. A lock with digests is consent: whoever wrote it
chose those bytes. The published client's two forms hold commits only (the older one also a hash of
git objects, compared with what the hub lists), so trust is asked as for any other load.
"""

from __future__ import annotations

from collections.abc import Collection

from kernel_spec.errors import IntegrityError
from kernel_spec.lock import LockedKernel, git_lfs_concat
from kernel_spec.wire import TreeFile
from kernels.choose import choose_variant
from kernels.errors import NotCachedError, NoVariantError
from kernels.fit import NOT_CACHED, Judge
from kernels.lockfile import LockFile, get_entry, pinned_ref
from kernels.request import Found, Request, found_on_hub
from kernels.revision import KernelRef
from kernels.source import locate
from kernels.store import Store
from kernels.system import detect
from kernels.variant_dir import VariantDir
from kernels.verify import verify_installed


def find_locked(ref: KernelRef, lockfile: LockFile, request: Request) -> Found:
    """Find a kernel at the commit that a lock names.

    Raises:
        NotCachedError: it is not in the cache, and nothing may be downloaded.
        NotLockedError: the lock does not answer the request.
        As ``source.locate`` and ``choose.choose_variant``.
    """
    entry = get_entry(lockfile, ref)
    if entry.variants:
        variant = _find_by_digest(entry, ref, request)
        if variant is not None:
            return Found(
                ref=ref,
                metadata=variant.metadata,
                source=str(lockfile.path),
                variant=variant,
                locked=entry,
            )
    located = locate(pinned_ref(entry), request.settings, user_agent=request.user_agent)
    chosen = choose_variant(
        located, request.settings, request.backend, check_arch=request.check_arch
    )
    if chosen.installed is None and not request.download:
        raise _not_downloaded(entry, chosen.wanted.variant)
    return found_on_hub(ref, located, chosen, locked=entry)


def require_locked(found: Found, variant: VariantDir) -> None:
    """Compare a variant on disk with what the lock names.

    Raises:
        IntegrityError: they differ.
    """
    entry = found.locked
    assert entry is not None
    name = variant.path.name
    if entry.variants:
        expected, actual = entry.variants.get(name), variant.digest
        if expected != actual:
            raise _differs(entry, name, expected, actual)
    elif entry.lfs_hashes and found.chosen is not None and not found.chosen.wanted.hub.is_directory:
        # A directory hub does not say which of its files git would keep as pointers.
        expected = entry.lfs_hashes.get(name)
        actuals = lfs_hashes(found.chosen.wanted.files)
        if expected not in actuals:
            raise _differs(entry, name, expected, actuals[0])


def lfs_hashes(files: Collection[TreeFile]) -> tuple[str, str]:
    """Return the old form's hash of a variant, as later and as earlier clients computed it."""
    raw = {file.path: bytes.fromhex(file.sha256 or file.oid) for file in files}
    return git_lfs_concat(raw), git_lfs_concat(raw, leave_out_bytecode=False)


def _find_by_digest(entry: LockedKernel, ref: KernelRef, request: Request) -> VariantDir | None:
    """Return the best locked variant in the cache; None where a better one is to be downloaded."""
    settings = request.settings
    judge = Judge(str(ref), detect(), list(entry.variants), request.backend)
    variants = Store(settings.cache).folder("variants")
    for accepted in judge.fitting:
        found = verify_installed(variants / entry.variants[accepted.name], settings.state)
        if isinstance(found, VariantDir):
            if judge.accepts(
                accepted,
                found.metadata,
                check_arch=request.check_arch,
                on_disk=found,
                state=settings.state,
            ):
                return found
        elif request.download:
            return None
        elif found is not None:
            raise IntegrityError(
                f"The cached copy of {entry.repo_id} ({accepted.name}) is damaged; nothing of it "
                f"was executed:\n{found}\nFetch it again with: kernels download"
            )
        else:
            judge.reject(accepted, NOT_CACHED)
    error = judge.error()
    if isinstance(error, NoVariantError) and judge.lacks_cached:
        raise _not_downloaded(entry, str(error))
    raise judge.error(
        f"To see what to do about it: kernels doctor {entry.repo_id} --revision {entry.commit}"
    )


def _not_downloaded(entry: LockedKernel, what: str) -> NotCachedError:
    return NotCachedError(
        entry.repo_id,
        f"{entry.repo_id} is locked at commit {entry.commit[:12]}, but its variant is not in the "
        f"cache: {what}\nBring it here, with the same KERNELS_CACHE: kernels download",
    )


def _differs(entry: LockedKernel, name: str, expected: str | None, actual: str) -> IntegrityError:
    return IntegrityError(
        f"{entry.repo_id} ({name} at commit {entry.commit[:12]}) is not what the lock names; nothing "
        f"of it was executed: expected {expected or 'no such variant'}, found {actual}. If the lock "
        "is the older one, lock again: kernels lock --upgrade"
    )
