"""Chooses among the variants of a located kernel: the best that fits by name and by its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kernel_spec.backend import BackendKind
from kernel_spec.compat import Accepted, Reason, choose
from kernel_spec.errors import IntegrityError, KernelError, MetadataError
from kernel_spec.metadata import FILE_NAME, Metadata, parse_metadata
from kernel_spec.names import version_of_branch
from kernels import log
from kernels.errors import (
    ClientTooOldError,
    DeviceError,
    NotCachedError,
    NoVariantError,
)
from kernels.fetch import Wanted, fetch_metadata
from kernels.fit import NOT_CACHED, Judge
from kernels.revision import versions_of
from kernels.settings import Settings
from kernels.source import Located, offered
from kernels.store import Store
from kernels.system import detect
from kernels.trees import tree_of, variants_of
from kernels.variant_dir import VariantDir
from kernels.verify import Damage, find_installed

# How many other versions the error looks through for one that would fit.
HINT_VERSIONS = 5


class Chosen(NamedTuple):
    """The variant that a load takes, installed already or still to be fetched."""

    wanted: Wanted
    installed: VariantDir | None
    have: Mapping[str, bytes]
    metadata: Metadata


def choose_variant(
    located: Located, settings: Settings, backend: BackendKind | None, *, check_arch: bool
) -> Chosen:
    """Take the best variant that fits by name and by its verified metadata.

    Raises:
        CacheError: the best one is in the cache and cannot be read.
        ClientTooOldError, DeviceError, NoVariantError: none does.
        IntegrityError: the best one is damaged, and offline it cannot be repaired.
    """
    judge = Judge(str(located.ref), detect(), list(variants_of(located.files)), backend)
    for accepted in judge.fitting:
        chosen = find_candidate(judge, accepted, located, settings, check_arch=check_arch)
        if chosen is not None:
            return chosen
    raise _nothing_fits(located, judge, settings, backend)


def find_candidate(
    judge: Judge,
    accepted: Accepted,
    located: Located,
    settings: Settings,
    *,
    check_arch: bool = True,
) -> Chosen | None:
    """Return a variant that fits by name if it fits by all that is known of it; the judge keeps why not.

    Raises:
        CacheError: it is in the cache and cannot be read.
        IntegrityError: it is damaged, and offline it cannot be repaired.
        MetadataError: its metadata is wrong.
    """
    store = Store(settings.cache)
    wanted = offered(located)[accepted.name]
    found = find_installed(store, wanted.files, settings.state)
    if isinstance(found, VariantDir):
        fits = judge.accepts(
            accepted, found.metadata, check_arch=check_arch, on_disk=found, state=settings.state
        )
        return Chosen(wanted, found, have={}, metadata=found.metadata) if fits else None
    if isinstance(found, Damage):
        _report_damage(wanted, found, settings, on_disk=located.on_disk)
    if settings.offline and not located.on_disk:
        judge.reject(accepted, NOT_CACHED)
        return None
    data = fetch_metadata(wanted, store)
    metadata = _usable_metadata(data, judge, accepted)
    if metadata is not None and judge.accepts(accepted, metadata, check_arch=check_arch):
        return Chosen(wanted, None, have={FILE_NAME: data or b""}, metadata=metadata)
    return None


def obtain(chosen: Chosen, settings: Settings) -> VariantDir:
    """Return a chosen variant on this disk; downloads and verifies it where it is not there yet.

    Raises:
        CacheError, HubUnreachableError, IntegrityError: as ``install.install``.
    """
    if chosen.installed is not None:
        return chosen.installed
    from kernels.install import install  # a warm cache installs nothing

    return install(Store(settings.cache), chosen.wanted, settings.state, have=chosen.have)


def _nothing_fits(
    located: Located, judge: Judge, settings: Settings, backend: BackendKind | None
) -> NoVariantError | ClientTooOldError | DeviceError | NotCachedError:
    hint = _hint(located, settings, backend)
    error = judge.error(hint or f"To see what to do about it: kernels doctor {located.ref.repo}")
    if settings.offline and isinstance(error, NoVariantError) and judge.lacks_cached:
        return NotCachedError(
            str(located.ref.repo), f"{settings.offline_cause} forbids asking a hub. {error}"
        )
    return error


def _usable_metadata(data: bytes | None, judge: Judge, accepted: Accepted) -> Metadata | None:
    if data is None:
        judge.reject(accepted, Reason("metadata", "has no metadata.json"))
        return None
    try:
        return parse_metadata(data)
    except MetadataError as err:
        judge.reject_or_raise(accepted, data, err)
        return None


def _report_damage(wanted: Wanted, damage: Damage, settings: Settings, *, on_disk: bool) -> None:
    if settings.offline and not on_disk:
        raise IntegrityError(
            f"The cached copy of {wanted} is damaged; nothing of it was executed:\n{damage}\n"
            f"{settings.offline_cause} forbids repairing it from the hub: load it once with the network on, "
            "or copy an undamaged cache here."
        )
    log.logger().warning(
        "the cached copy of %s is damaged and is fetched again from %s:\n%s",
        wanted,
        wanted.hub.url,
        damage,
    )


def _hint(located: Located, settings: Settings, backend: BackendKind | None) -> str:
    """Name another version that has a fitting variant, if one has."""
    other = find_other_version(located, settings, backend)
    if other is None:
        return ""
    version, name = other
    return (
        f"However, version {version} has a variant that fits ({name}): "
        f"get_kernel({str(located.ref.repo)!r}, version={version})."
    )


def find_other_version(
    located: Located, settings: Settings, backend: BackendKind | None
) -> tuple[int, str] | None:
    """Return the newest other version that has a fitting variant, and that one's name; never fails."""
    if located.refs is None:
        return None
    current = version_of_branch(located.taken.removeprefix("branch "))
    commits = {ref.name: ref.commit for ref in located.refs.branches}
    others = [version for version in versions_of(located.refs) if version != current]
    system = detect()
    for version in others[: -HINT_VERSIONS - 1 : -1]:
        try:
            files = tree_of(located.hub, located.ref.repo, commits[f"v{version}"], settings)
        except KernelError:
            continue
        if (fitting := choose(system, variants_of(files), backend=backend)) is not None:
            return version, fitting.name
    return None
