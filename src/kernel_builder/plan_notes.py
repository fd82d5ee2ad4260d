"""What a plan says beside its variants: what decided the ABI, what loads them, and what is left out."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_builder.config.model import Build, Testing, TorchFramework
from kernel_builder.device_headers import note_device_headers
from kernel_builder.known import read_known
from kernel_builder.planned import VariantBuild
from kernel_builder.sources import SourceSet
from kernel_builder.units import is_compiled, unpackaged_notes
from kernel_spec.backend import BackendKind


def note_variant(sources: SourceSet, variant: VariantBuild) -> list[str]:
    """Say what decided the ABI, and which listed files are neither compiled nor headers."""
    if not variant.units:
        return []
    used = {unit.source for unit in variant.units} | set(variant.headers)
    full = [file for file in sources.listed if file.path in used and file.full_abi_header]
    full = [] if variant.tvm_ffi is not None else full
    notes = []
    if full and variant.stable_abi is None:
        notes.append(
            f"{variant.variant}: built for torch {variant.torch and variant.torch.release} alone, "
            f"since {full[0].path} includes {full[0].full_abi_header}"
        )
        notes += _note_unofficial(variant)
    elif full:
        notes.append(
            f"{variant.variant}: stable-abi is set, but {full[0].path} includes "
            f"{full[0].full_abi_header}, which is not in the stable ABI"
        )
    notes += [
        f"{variant.variant}: {path} is listed but not compiled for {variant.backend.value}"
        for path in dict.fromkeys(variant.headers)
        if any(is_compiled(path, backend) for backend in BackendKind)
    ]
    return notes + note_device_headers(sources.listed, variant)


def _note_unofficial(variant: VariantBuild) -> list[str]:
    """Say that no official torch loads a variant: none of its release is for its CUDA, or for a later minor one."""
    kind, toolkit = variant.backend, variant.toolkit
    if variant.torch is None or toolkit is None:
        return []
    return [
        f"{variant.variant}: official torch {release.version} is for {kind.value} "
        f"{', '.join(map(str, release.backends.get(kind, ())))}; none of them loads what is built "
        f"with {toolkit}"
        for release in read_known().torch_releases
        if release.version == variant.torch.release and not release.loads(kind, toolkit)
    ]


def note_project(build: Build, sources: SourceSet, variants: Iterable[VariantBuild]) -> list[str]:
    """Say of a whole project what does not hold, what stays behind, and what is odd in ``build.toml``."""
    return [
        *_note_unbounded(build, variants),
        *unpackaged_notes(build, sources),
        *(
            f"{each} of build.toml is read by this builder alone; the published one refuses it"
            for each in _list_extensions(build)
        ),
        *(f"build.toml: {each.replace('-', ' ')}" for each in build.warnings),
        *(f"build.toml:{each.line}: {each.path}: {each.message}" for each in build.doubts),
    ]


def _note_unbounded(build: Build, variants: Iterable[VariantBuild]) -> list[str]:
    """Say that ``torch.maxver`` keeps no later torch from loading a variant for the stable ABI."""
    framework = build.framework
    maxver = framework.torch.maxver if isinstance(framework, TorchFramework) else None
    return [
        f'{variant.variant}: maxver = "{maxver}" chooses what is built; every torch from '
        f"{variant.stable_abi} on loads it, since it is for the stable ABI"
        for variant in variants
        if maxver is not None and variant.stable_abi is not None
    ]


def _list_extensions(build: Build) -> list[str]:
    """Return what of a ``build.toml`` the format of the published builder does not have."""
    found = ["[sources]"] * bool(build.sources) + ["[test]"] * (build.testing != Testing())
    if isinstance(build.framework, TorchFramework) and build.framework.noarch:
        found.append("torch.noarch")
    found += ["per-torch"] * any(each.per_torch for each in build.components)
    return found
