"""The plan of the per-torch libraries of a variant: which releases of torch, and of which files. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernel_builder.config.general import version_key
from kernel_builder.config.model import Component, TorchFramework, VersionBounds
from kernel_builder.planned import VariantBuild
from kernel_builder.toolchain.torch_releases import PinnedTorch, read_torch_releases
from kernel_builder.units import plan_units
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.framework import Torch
from kernel_spec.system import TorchBuild
from kernel_spec.variant import ArchVariant
from kernel_spec.version import MajorMinor


def split_per_torch(
    components: Iterable[Component],
) -> tuple[tuple[Component, ...], tuple[Component, ...]]:
    """Return the components of the main library, and those that are compiled for each torch."""
    chosen = tuple(components)
    return (
        tuple(each for each in chosen if not each.per_torch),
        tuple(each for each in chosen if each.per_torch),
    )


def plan_per_torch(
    made: VariantBuild, framework: TorchFramework, components: tuple[Component, ...]
) -> VariantBuild:
    """Give a variant its per-torch libraries, one for each pinned release that can load it.

    Args:
        made: the variant, planned without them.
        framework: the ``[torch]`` section.
        components: the per-torch components of the variant; none: it comes back as it is.
    """
    if not components or not isinstance(made.variant, ArchVariant) or made.stable_abi is None:
        return made
    pinned = _choose_releases(made.variant, made.stable_abi, framework.torch)
    parts = tuple(_plan_part(made, made.variant, framework, components, each) for each in pinned)
    return replace(made, per_torch=parts)


def note_missing_parts(made: VariantBuild, components: tuple[Component, ...]) -> tuple[str, ...]:
    """Say why a variant has no per-torch library, where it has components for some.

    Args:
        made: the variant, as :func:`plan_per_torch` left it.
        components: its per-torch components.
    """
    if made.per_torch or not components or not isinstance(made.variant, ArchVariant):
        return ()
    releases = read_torch_releases(made.variant.cpu) if made.variant.os == "linux" else ()
    pinned = sorted(each.release for each in releases)
    if made.stable_abi is None:
        why = "it is for one torch alone, and they stand beside a library for the stable ABI"
    elif not pinned:
        why = "no headers of torch are pinned for its processor"
    else:
        why = (
            f"headers are pinned of torch {', '.join(map(str, pinned))}, and stable-abi, minver and "
            "maxver of [torch] leave none of them"
        )
    return (f"no per-torch library is built, since {why}; the kernel works without",)


def _choose_releases(
    variant: ArchVariant, lowest: MajorMinor, bounds: VersionBounds
) -> Iterator[PinnedTorch]:
    """Yield the pinned releases that load a variant, within the bounds of the project, oldest first."""
    if variant.os != "linux":
        return
    for each in sorted(read_torch_releases(variant.cpu), key=lambda pinned: pinned.release):
        release = each.release
        if release < lowest:
            continue
        if bounds.minver is not None and release < MajorMinor(*version_key(bounds.minver)):
            continue
        if bounds.maxver is not None and release > MajorMinor(*version_key(bounds.maxver)):
            continue
        yield each


def _plan_part(
    made: VariantBuild,
    variant: ArchVariant,
    framework: TorchFramework,
    components: tuple[Component, ...],
    pinned: PinnedTorch,
) -> VariantBuild:
    """Plan one library: its files without the binding, which is the main library's."""
    units, headers = plan_units(replace(framework, src=()), components)
    depends = {name for each in components for name in each.depends}
    return replace(
        made,
        variant=ArchVariant(
            Torch(pinned.release, cxx11=True), Backend(BackendKind.CPU), variant.cpu, variant.os
        ),
        backend=BackendKind.CPU,
        # The C++ compiler takes them all, whatever devices the ops are for.
        units=tuple(replace(unit, backend=BackendKind.CPU, archs=()) for unit in units),
        headers=headers,
        package=(),
        torch=describe_build(pinned),
        archs=(),
        depends=tuple(sorted(depends)),
        sources=tuple(source for source in made.sources if source.name in depends),
        is_part=True,
        is_pinned=True,
    )


def describe_build(pinned: PinnedTorch) -> TorchBuild:
    """Return a pinned torch as the plan has it: an official build for Linux."""
    return TorchBuild(
        version=pinned.version, release=pinned.release, prerelease=False, cxx11_abi=True
    )


def choose_parts(made: VariantBuild, releases: frozenset[MajorMinor]) -> VariantBuild:
    """Leave a variant the libraries for some releases of torch."""
    return replace(
        made, per_torch=tuple(part for part in made.per_torch if part.release in releases)
    )


def find_loadable(build: VariantBuild, torch: TorchBuild | None) -> VariantBuild | None:
    """Return the per-torch library that the installed torch loads, or None."""
    if torch is None or torch.prerelease:
        return None
    return next((part for part in build.per_torch if part.release == torch.release), None)
