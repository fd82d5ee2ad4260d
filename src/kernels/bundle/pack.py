"""The story of ``kernels bundle create``: locate, choose for each target, download, verify, write one file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.errors import IntegrityError, KernelError
from kernel_spec.lock import LockedKernel
from kernel_spec.metadata import parse_metadata
from kernel_spec.system import System
from kernels.bundle.archive import Packed, write_archive
from kernels.bundle.scratch import scratch_folder
from kernels.errors import BundleError, describe_decisions
from kernels.fetch import fetch_metadata
from kernels.fit import Judge
from kernels.install import install
from kernels.lockfile import pinned_ref
from kernels.resolve import dependency_ref
from kernels.revision import KernelRef
from kernels.settings import Settings
from kernels.source import Located, locate, offered, read_refs
from kernels.store import Store
from kernels.system import describe
from kernels.variant_dir import VariantDir


class Asked(NamedTuple):
    """A kernel to pack: what is asked for, and the lock's entry if it comes from one."""

    ref: KernelRef
    locked: LockedKernel | None = None


class _Picked(NamedTuple):
    """A kernel that was located, and its variants that targets take, on this disk."""

    located: Located
    names: set[str]
    variants: dict[str, VariantDir]


def asked_by_lock(entries: Sequence[LockedKernel]) -> tuple[Asked, ...]:
    """Return the kernels of a lock, each at its commit."""
    return tuple(Asked(pinned_ref(entry), entry) for entry in entries)


def create(
    target: Path, asked: Sequence[Asked], systems: Sequence[System], settings: Settings
) -> tuple[Packed, ...]:
    """Write the bundle of kernels, and of those that they need, for systems; runs nothing of them.

    Args:
        target: the file; it appears whole.
        asked: the kernels.
        systems: the machines that they are for; none of them need be this one.
        settings: where kernels are looked for.

    Returns:
        What it holds.

    Raises:
        BundleError: with every kernel that has nothing for a system.
        IntegrityError: bytes are not those that the hub, the metadata or the lock promise.
        OSError: it cannot be written, or a hub cannot be reached.
        LookupError: a hub has no such kernel, version or revision.
    """
    picked: dict[tuple[str, str], _Picked] = {}
    faults: list[KernelError] = []
    for one in asked:
        for system in systems:
            try:
                _pick(one, system, settings, picked, ())
            except BundleError as err:
                faults.append(err)
    faults += _find_clashes(picked.values())
    if faults:
        raise BundleError("\n".join(dict.fromkeys(map(str, faults))))
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(target.parent, f".{target.name}.") as folder:
        hub = DirectoryHub(folder)
        packed = tuple(_publish(hub, one, settings) for one in picked.values())
        write_archive(target, hub.root, packed)
    return packed


def _find_clashes(picked: Iterable[_Picked]) -> list[KernelError]:
    """Find branches that a lock pins to one commit while another of the bundle is at them."""
    holders: dict[tuple[str, str], str] = {}
    faults: list[KernelError] = []
    for one in picked:
        located = one.located
        repo = str(located.ref.repo)
        named = {located.taken.removeprefix("branch ")} | one.names
        for name in named:
            other = holders.setdefault((repo, name), located.commit)
            if other != located.commit:
                faults.append(
                    BundleError(
                        f"{repo}: {name} would mean {other[:12]} and {located.commit[:12]}: make two "
                        "bundles, or lock again: kernels lock --upgrade"
                    )
                )
    return faults


def _pick(
    asked: Asked,
    system: System,
    settings: Settings,
    picked: dict[tuple[str, str], _Picked],
    trail: tuple[KernelRef, ...],
) -> None:
    """Choose the variant that a system takes of a kernel, and of each that it needs."""
    located = locate(asked.ref, settings)
    key = (str(located.ref.repo), located.commit)
    entry = picked.setdefault(key, _Picked(located, set(), {}))
    if asked.locked is not None and asked.locked.version is not None:
        entry.names.add(f"v{asked.locked.version}")
    variant = _choose(located, system, settings)
    if asked.locked is not None and asked.locked.variants:
        promised = asked.locked.variants.get(variant.path.name)
        if promised != variant.digest:
            raise IntegrityError(
                f"{located.ref} ({variant.path.name}) is not what the lock names: expected "
                f"{promised or 'no such variant'}, found {variant.digest}"
            )
    entry.variants[variant.path.name] = variant
    for dependency in variant.metadata.kernel_depends:
        below = dependency_ref(dependency)
        if below not in trail:
            _pick(Asked(below), system, settings, picked, (*trail, asked.ref, below))


def _choose(located: Located, system: System, settings: Settings) -> VariantDir:
    """Return the best variant for a system, installed and verified."""
    store = Store(settings.cache)
    variants = offered(located)
    judge = Judge(str(located.ref), system, list(variants), None)
    for accepted in judge.fitting:
        wanted = variants[accepted.name]
        data = fetch_metadata(wanted, store)
        if data is None:
            continue
        metadata = parse_metadata(data)
        # A machine whose devices were not said takes what fits by name.
        if judge.accepts(accepted, metadata, check_arch=bool(system.devices)):
            return install(store, wanted, settings.state)
    lines = [f"No build variant of {located.ref} fits the target ({describe(system)})."]
    # What is judged here is another machine than the one that says so.
    verdicts = [
        line.replace("this system", "the target") for line in describe_decisions(judge.verdicts)
    ]
    raise BundleError("\n  ".join([*lines, *verdicts]))


def _publish(hub: DirectoryHub, picked: _Picked, settings: Settings) -> Packed:
    """Put a kernel's variants into the hub that becomes the bundle."""
    located = picked.located
    repo, commit = located.ref.repo, located.commit
    refs = located.refs or read_refs(repo, settings)[1]
    branches = {ref.name for ref in refs.branches if ref.commit == commit} | picked.names
    tags = {ref.name for ref in refs.tags if ref.commit == commit}
    packed = Packed(
        repo=repo,
        hub="" if located.hub.is_directory else located.hub.url,
        commit=commit,
        branches=tuple(sorted(branches)),
        tags=tuple(sorted(tags)),
        listing="",
        files=tuple(file for file in located.files if file.path.startswith("build/")),
        variants={name: variant.digest for name, variant in picked.variants.items()},
    )
    files = {
        f"build/{name}/{path}": variant.path / path
        for name, variant in picked.variants.items()
        for path in variant.sha256
    }
    listing = ""
    for index, branch in enumerate(packed.heads):
        listing = publishing.publish(
            hub, repo, files, branch=branch, parent=None, tags=() if index else packed.tags
        )
    return packed._replace(listing=listing)
