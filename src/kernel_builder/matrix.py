"""Every variant that a project can have, and what building each of them needs. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kernel_builder.config.model import Build
from kernel_builder.errors import ArchError
from kernel_builder.known import TorchRelease, read_known
from kernel_builder.plan import plan
from kernel_builder.planned import Host, Selection, VariantBuild
from kernel_builder.sources import SourceSet
from kernel_builder.toolchain.torch_releases import find_release
from kernel_spec.backend import UNVERSIONED, Backend, BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.variant import ArchVariant, format_variant
from kernel_spec.version import MajorMinor

_LINUX = (("x86_64", "linux"), ("aarch64", "linux"))
_SYSTEMS = {
    BackendKind.ROCM: _LINUX[:1],
    BackendKind.XPU: _LINUX[:1],
    BackendKind.METAL: (("aarch64", "darwin"),),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Possible:
    """A variant that a project can have.

    Attributes:
        variant: its name.
        backend: what it is for.
        needs: what building it needs that is not there or not chosen, half sentences; none: it is
            what a plain build gives here.
    """

    variant: str
    backend: BackendKind
    needs: tuple[str, ...]


def list_possible(
    build: Build, sources: SourceSet, *, host: Host, pinned: Iterable[MajorMinor]
) -> tuple[Possible, ...]:
    """List all variants of a project: for each torch, backend and processor, by name.

    Args:
        build: the project.
        sources: its files.
        host: what this machine offers.
        pinned: the CUDA toolkits that can be fetched here.
    """
    toolkits = tuple(pinned)
    own = tuple(target.version for target in host.targets(BackendKind.CUDA) if target.version)
    found: dict[str, Possible] = {}
    for release in read_known().torch_releases:
        for variant in _plan_all(build, sources, host, release, (*toolkits, *own)):
            name = format_variant(variant.variant)
            needs = tuple(_list_needs(variant, host, toolkits))
            known = found.get(name)
            if known is None or len(needs) < len(known.needs):
                found[name] = Possible(variant=name, backend=variant.backend, needs=needs)
    return tuple(found[name] for name in sorted(found))


def _plan_all(
    build: Build,
    sources: SourceSet,
    host: Host,
    release: TorchRelease,
    pinned: tuple[MajorMinor, ...],
) -> Iterator[VariantBuild]:
    """Plan for machines that have everything, one torch release at a time."""
    torch = TorchBuild(
        version=f"{release.version}.0",
        release=release.version,
        prerelease=False,
        cxx11_abi=True,
    )
    for backend in build.general.backends:
        for version in _versions(release, backend, pinned):
            for cpu, system in _SYSTEMS.get(backend, _LINUX):
                everything = replace(
                    host,
                    cpu=cpu,
                    os=system,
                    torch=torch,
                    missing={},
                    toolkits={} if version is None else {backend: version},
                    more_toolkits={},
                    pinned_torches=(),
                )
                selection = Selection(backends=frozenset({backend}))
                try:
                    planned = plan(build, sources, host=everything, selection=selection)
                except ArchError:
                    continue  # this toolkit compiles for none of its architectures
                for variant in planned.variants:
                    if _is_official(variant, release, version):
                        yield variant


def _versions(
    release: TorchRelease, backend: BackendKind, pinned: tuple[MajorMinor, ...]
) -> tuple[MajorMinor | None, ...]:
    if backend in UNVERSIONED:
        return (None,)
    more = pinned if backend is BackendKind.CUDA else ()
    return tuple(dict.fromkeys((*release.backends.get(backend, ()), *more)))


def _is_official(variant: VariantBuild, release: TorchRelease, version: MajorMinor | None) -> bool:
    """Say whether a torch exists that the variant is for; the stable ABI and TVM FFI bind it to none."""
    if version is None or variant.stable_abi is not None or not variant.units:
        return True
    if variant.tvm_ffi is not None:
        return True
    return release.loads(variant.backend, version)


def _list_needs(variant: VariantBuild, host: Host, pinned: tuple[MajorMinor, ...]) -> Iterator[str]:
    if not variant.units:
        return
    assert isinstance(variant.variant, ArchVariant)
    target, cpu = variant.variant.backend, variant.variant.cpu
    # What another system has to have, its toolkit says.
    if cpu != host.cpu and variant.variant.os == host.os:
        crossed = target.kind in (BackendKind.CPU, BackendKind.CUDA)
        cross = f", or a cross compiler: --cpu {cpu}" if crossed else ""
        yield f"a machine with {cpu}{cross}"
    if variant.tvm_ffi is None:
        yield from _list_torch_needs(variant, variant.variant, host)
    yield from _list_toolkit_needs(target, host, pinned)


def _list_torch_needs(variant: VariantBuild, named: ArchVariant, host: Host) -> Iterator[str]:
    torch = host.torch
    if variant.stable_abi is None and variant.torch is not None:
        wanted = variant.torch.release
        if torch is not None and torch.release == wanted:
            return
        if named.os == "linux" and find_release(named.cpu, wanted) is not None:
            yield f"--torch {wanted}"
        else:
            found = "none" if torch is None else torch.version
            yield f"torch {wanted} in this environment, found {found}"
    elif torch is None:
        yield "torch"
    elif variant.stable_abi is not None and torch.release < variant.stable_abi:
        yield f"torch {variant.stable_abi} or newer, found {torch.version}"


def _list_toolkit_needs(
    target: Backend, host: Host, pinned: tuple[MajorMinor, ...]
) -> Iterator[str]:
    if target in host.targets(target.kind):
        if target.kind in host.missing:
            yield host.missing[target.kind].removeprefix("needs ")
        return
    if target.kind is not BackendKind.CUDA:
        yield host.missing.get(target.kind, f"a toolkit for {target}").removeprefix("needs ")
    elif target.version in pinned:
        yield f"--cuda {target.version}"
    else:
        yield f"a toolkit of CUDA {target.version}: --cuda-home PATH"
