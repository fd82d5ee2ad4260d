"""The story of ``kernels download``: brings every locked kernel into the cache; imports nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kernel_spec.errors import IntegrityError, KernelError
from kernel_spec.lock import LockedKernel
from kernels.choose import Chosen, obtain
from kernels.errors import TrustError
from kernels.install import install
from kernels.locked import find_locked, require_locked
from kernels.lockfile import LockFile, pinned_ref, ref_of
from kernels.request import Request, found_on_hub
from kernels.settings import Settings
from kernels.source import Located, locate, offered
from kernels.store import Store
from kernels.trees import variants_of
from kernels.trust import require_trust
from kernels.variant_dir import VariantDir


class Fetched(NamedTuple):
    """One variant of a locked kernel: where it is now, or why it is not."""

    entry: LockedKernel
    variant: str
    place: VariantDir | None
    error: KernelError | None = None
    downloaded: bool = False


def prefetch(lockfile: LockFile, settings: Settings, *, all_variants: bool) -> Iterator[Fetched]:
    """Download and verify, for each locked kernel, the variant that fits this system, or all of them.

    A kernel that fails does not keep the others from being fetched.
    """
    for entry in lockfile.lock.kernels:
        try:
            if all_variants:
                yield from _fetch_all(entry, settings)
            else:
                yield _fetch_fitting(entry, lockfile, settings)
        except KernelError as err:
            yield Fetched(entry, "", None, err)


def doubts(lockfile: LockFile, settings: Settings) -> Iterator[TrustError]:
    """Yield why a kernel that was fetched will not be loaded, where its lock is no consent.

    Asking also remembers the hub's answer, which an image without network needs.
    """
    for entry in lockfile.lock.kernels:
        if entry.variants:
            continue
        located = locate(pinned_ref(entry), settings)
        try:
            if not located.hub.is_directory:
                require_trust(located, settings, consent=False)
        except TrustError as err:
            yield err


def _fetch_fitting(entry: LockedKernel, lockfile: LockFile, settings: Settings) -> Fetched:
    found = find_locked(ref_of(entry), lockfile, Request(settings=settings, check_arch=False))
    if found.variant is not None:
        require_locked(found, found.variant)
        return Fetched(entry, found.variant.path.name, found.variant)
    assert found.chosen is not None
    variant = obtain(found.chosen, settings)
    require_locked(found, variant)
    return Fetched(entry, variant.path.name, variant, downloaded=True)


def _fetch_all(entry: LockedKernel, settings: Settings) -> Iterator[Fetched]:
    located = locate(pinned_ref(entry), settings)
    variants = variants_of(located.files)
    for name in sorted({*(entry.variants or variants)}):
        if name not in variants:
            error = IntegrityError(f"{entry.repo_id} at {entry.commit} has no variant {name}.")
            yield Fetched(entry, name, None, error)
            continue
        try:
            yield _fetch_one(entry, located, name, settings)
        except KernelError as err:
            yield Fetched(entry, name, None, err)


def _fetch_one(entry: LockedKernel, located: Located, name: str, settings: Settings) -> Fetched:
    wanted = offered(located)[name]
    variant = install(Store(settings.cache), wanted, settings.state)
    chosen = Chosen(wanted, variant, {}, variant.metadata)
    require_locked(found_on_hub(located.ref, located, chosen, locked=entry), variant)
    return Fetched(entry, name, variant, downloaded=True)
