"""The plan: which variants come out of a project here, and what each is made of. Pure, no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from kernel_builder.config.general import version_key
from kernel_builder.config.model import (
    Build,
    Component,
    TorchFramework,
    TorchNoarch,
    TvmFfiFramework,
)
from kernel_builder.errors import SelectionError
from kernel_builder.known import is_known, read_known
from kernel_builder.op_id import make_op_id
from kernel_builder.per_torch import (
    choose_parts,
    note_missing_parts,
    plan_per_torch,
    split_per_torch,
)
from kernel_builder.plan_notes import note_project, note_variant
from kernel_builder.planned import (
    EVERYTHING,
    Host,
    Plan,
    Selection,
    SkippedBackend,
    VariantBuild,
)
from kernel_builder.sources import SourceFile, SourceSet
from kernel_builder.targets import choose_cuda
from kernel_builder.toolchain.tvm_ffi import pinned_interface
from kernel_builder.units import packaged_files, plan_units
from kernel_spec.backend import BackendKind
from kernel_spec.errors import VariantNameError
from kernel_spec.framework import Torch, TorchStableAbi, TvmFfi
from kernel_spec.system import TorchBuild
from kernel_spec.variant import ArchVariant, NoarchVariant, Variant, parse_variant
from kernel_spec.version import MajorMinor, parse_major_minor

_NO_TORCH = "needs torch (pip install torch)"


def plan(
    build: Build, sources: SourceSet, *, host: Host, selection: Selection = EVERYTHING
) -> Plan:
    """Decide which variants come out of a project, and what each is made of.

    Raises:
        SelectionError: a backend or variant was asked for that the project does not have.
        ArchError: of the architectures of a component, none can be compiled.
    """
    _check_backends(build, selection)
    variants: list[VariantBuild] = []
    skipped: list[SkippedBackend] = []
    notes: list[str] = []
    for backend in build.general.backends:
        if selection.backends and backend not in selection.backends:
            continue
        for outcome, said in _plan_backend(build, sources, backend, host, selection.archs):
            if isinstance(outcome, str):
                skipped.append(SkippedBackend(backend=backend, reason=outcome))
                continue
            variants.append(outcome)
            notes += [
                *note_variant(sources, outcome),
                *(f"{outcome.variant}: {each}" for each in said),
            ]
    if selection.per_torch is not None:
        variants = [choose_parts(one, selection.per_torch) for one in variants]
    variants.sort(key=lambda variant: str(variant.variant))
    notes += note_project(build, sources, variants)
    if selection.variants:
        _check_variants(variants, skipped, selection)
        variants = [one for one in variants if str(one.variant) in selection.variants]
        skipped = []
    else:
        _check_torches(variants, skipped, host)
    return Plan(variants=tuple(variants), skipped=tuple(skipped), notes=tuple(dict.fromkeys(notes)))


def _check_backends(build: Build, selection: Selection) -> None:
    unknown = sorted(selection.backends - set(build.general.backends))
    if unknown:
        names = ", ".join(kind.value for kind in unknown)
        have = ", ".join(kind.value for kind in build.general.backends)
        raise SelectionError(
            f"{build.general.name}: no backend {names}; build.toml lists {have}. "
            "Add it to general.backends, or choose one of those"
        )


def _check_variants(
    variants: list[VariantBuild], skipped: list[SkippedBackend], selection: Selection
) -> None:
    names = [str(variant.variant) for variant in variants]
    unknown = sorted(selection.variants - set(names))
    if unknown:
        meant = {_backend_named(name) for name in unknown}
        there = f"expected one of {', '.join(names)}" if names else "none can be built here"
        if meant <= {each.backend for each in skipped}:
            there = "its backend is not built here"
            skipped = [each for each in skipped if each.backend in meant]
        lines = [
            f"no variant {', '.join(unknown)} here; {there} (list-variants --matrix "
            "shows what others need, and --torch builds for a torch that is not installed)"
        ]
        raise SelectionError("\n".join([*lines, *(f"  {each}" for each in skipped)]))


def _check_torches(variants: list[VariantBuild], skipped: list[SkippedBackend], host: Host) -> None:
    """Refuse releases that were asked for and that no variant is for."""
    have = {each.release for each in variants if each.is_pinned}
    left = [each.release for each in host.pinned_torches if each.release not in have]
    if left:
        why = "\n".join(f"  {each}" for each in skipped) or (
            "  --torch chooses among variants of torch's full interface, and there is none: those for "
            "the stable ABI serve every torch from theirs on"
        )
        raise SelectionError(f"no variant for torch {', '.join(map(str, left))} here:\n{why}")


def _backend_named(variant: str) -> BackendKind | None:
    """Return the backend of a variant by its name; None: that names none."""
    try:
        return parse_variant(variant).kind
    except VariantNameError:
        return None


def _plan_backend(
    build: Build, sources: SourceSet, backend: BackendKind, host: Host, asked: tuple[str, ...]
) -> Iterator[tuple[VariantBuild | str, tuple[str, ...]]]:
    """Plan the variants of a backend, each with notes, or say why there is none here."""
    components = components_of(build, backend)
    match build.framework:
        case TvmFfiFramework() if not components and backend is not BackendKind.CPU:
            name = backend.value
            yield (
                f"no [kernel] table and no file of [tvm-ffi] is for {name}: write one, or take {name} out "
                "of general.backends",
                (),
            )
        case TorchNoarch():
            yield _noarch(build, sources, backend), ()
        case TorchFramework() if not components:
            yield _noarch(build, sources, backend), ()
        case TorchFramework() | TvmFfiFramework() as framework:
            if isinstance(framework, TorchFramework) and backend in framework.noarch:
                yield _noarch(build, sources, backend), ()
            main, _ = split_per_torch(components)
            for interface, torch in _choose_interfaces(framework, sources, backend, main, host):
                if isinstance(interface, str):
                    yield interface, ()
                    continue
                is_pinned = isinstance(interface, Torch) and torch in host.pinned_torches
                for target in host.targets(backend):
                    variant = ArchVariant(interface, target, host.cpu, host.os)
                    made, said = _plan_compiled(
                        build, framework, sources, components, variant, torch=torch, asked=asked
                    )
                    if isinstance(made, VariantBuild):
                        made = replace(made, is_pinned=is_pinned)
                    yield made, said


def components_of(build: Build, backend: BackendKind) -> tuple[Component, ...]:
    """Return the components that go into the variant of a backend; none: it has no machine code.

    Those of the CPU come along with every other backend's: torch's dispatcher picks by the device
    of the tensors. TVM FFI has no dispatcher: there each backend has its own functions of a name.
    """
    own = tuple(each for each in build.components if each.backend is backend)
    if isinstance(build.framework, TvmFfiFramework):
        return own + _device_sources(build.framework, backend)
    if not own or backend is BackendKind.CPU or isinstance(build.framework, TorchNoarch):
        return own
    return own + tuple(each for each in build.components if each.backend is BackendKind.CPU)


def _device_sources(framework: TvmFfiFramework, backend: BackendKind) -> tuple[Component, ...]:
    """Return what of a TVM FFI binding is device code, which is compiled as any component is."""
    if backend is not BackendKind.CUDA:
        return ()
    src = tuple(path for path in framework.src if path.lower().endswith(".cu"))
    return (Component(name="tvm-ffi", backend=backend, depends=(), src=src),) if src else ()


def current_op_id(build: Build, sources: SourceSet, backend: BackendKind) -> str:
    """Return the op id that the variant of a backend gets from these sources."""
    return make_op_id(build, sources, backend, components_of(build, backend))


def _choose_interfaces(
    framework: TorchFramework | TvmFfiFramework,
    sources: SourceSet,
    backend: BackendKind,
    components: tuple[Component, ...],
    host: Host,
) -> Iterator[tuple[Torch | TorchStableAbi | TvmFfi | str, TorchBuild | None]]:
    """Yield the interfaces that a backend is built for, each with its torch, or say why there is none here.

    Only torch's full interface can be several: that of each release that is asked for.
    """
    refusal = _refuse_backend(framework, backend, host)
    if refusal is not None:
        yield refusal, None
        return
    if isinstance(framework, TvmFfiFramework):
        yield TvmFfi(pinned_interface()), None
        return
    abi = _stable_abi(framework, backend, _files_of(sources, framework, components))
    torches = () if abi is not None else host.pinned_torches
    if not torches and host.torch is None:
        yield _NO_TORCH, None
        return
    for torch in torches or (host.torch,):
        assert torch is not None
        refusal = _refuse_torch(framework, torch, abi)
        if refusal is not None:
            yield refusal, None
        elif abi is not None:
            yield TorchStableAbi(abi), torch
        else:
            yield Torch(torch.release, torch.cxx11_abi if host.os == "linux" else None), torch


def _refuse_backend(
    framework: TorchFramework | TvmFfiFramework, backend: BackendKind, host: Host
) -> str | None:
    """Say what this machine lacks to compile for a backend, or None."""
    if backend in host.missing:
        return host.missing[backend]
    if host.torch is None and not host.pinned_torches and isinstance(framework, TorchFramework):
        return _NO_TORCH
    if not host.targets(backend):
        return f"needs a toolkit for {backend.value}, and none was found"
    return None


def _plan_compiled(
    build: Build,
    framework: TorchFramework | TvmFfiFramework,
    sources: SourceSet,
    components: tuple[Component, ...],
    variant: ArchVariant,
    *,
    torch: TorchBuild | None,
    asked: tuple[str, ...],
) -> tuple[VariantBuild | str, tuple[str, ...]]:
    """Plan a variant with machine code, or say why there is none for this toolkit.

    Raises:
        ArchError: a component has no architecture that can be compiled.
    """
    backend = variant.backend
    notes: tuple[str, ...] = ()
    if backend.kind is BackendKind.CUDA and backend.version is not None:
        choice = choose_cuda(build, components, backend.version, asked=asked)
        if isinstance(choice, str):
            return choice, ()
        components, notes = choice.components, choice.notes
    main, per_torch = split_per_torch(components)
    units, headers = plan_units(framework, main)
    own = [each for each in main if each.backend is backend.kind]
    depends = {name for each in components for name in each.depends}
    made = replace(
        _plan_python(build, sources, variant, backend.kind),
        units=units,
        headers=headers,
        torch=torch,
        archs=_sorted(arch for component in own for arch in component.archs),
        depends=tuple(sorted(depends)),
        sources=tuple(source for source in build.sources if source.name in depends),
    )
    if isinstance(framework, TorchFramework):
        made = plan_per_torch(made, framework, per_torch)
        notes += note_missing_parts(made, per_torch)
    return made, notes


def _files_of(
    sources: SourceSet, framework: TorchFramework, components: Iterable[Component]
) -> tuple[SourceFile, ...]:
    paths = {*framework.src, *(path for component in components for path in component.src)}
    return tuple(file for file in sources.listed if file.path in paths)


def _stable_abi(
    framework: TorchFramework, backend: BackendKind, files: Iterable[SourceFile]
) -> MajorMinor | None:
    """Return the stable ABI to build for: the stated one, else the lowest if the sources allow it."""
    stated = framework.stable_abi.get(backend)
    if stated is not None:
        return parse_major_minor(stated)
    if any(file.full_abi_header is not None for file in files):
        return None
    lowest = read_known().lowest_stable_abi
    if framework.torch.minver is None:
        return lowest
    return max(lowest, MajorMinor(*version_key(framework.torch.minver)))


def _refuse_torch(
    framework: TorchFramework, torch: TorchBuild, abi: MajorMinor | None
) -> str | None:
    """Say why a torch cannot be built against, or None."""
    release = torch.release
    if abi is not None:
        if release < abi:
            return f"needs torch {abi} or newer for its stable ABI, found {torch.version}"
        return None
    if torch.prerelease:
        return f"needs a released torch for its full interface, found {torch.version}"
    low, high = framework.torch.minver, framework.torch.maxver
    if low is not None and release < MajorMinor(*version_key(low)):
        return f"needs torch {low} or newer (torch.minver), found {torch.version}"
    if high is not None and release > MajorMinor(*version_key(high)):
        return f"needs torch {high} or older (torch.maxver), found {torch.version}"
    return None


def _noarch(build: Build, sources: SourceSet, backend: BackendKind) -> VariantBuild:
    archs: tuple[str, ...] = ()
    if isinstance(build.framework, TorchNoarch):
        if backend is BackendKind.CUDA:
            archs = build.framework.cuda_capabilities
        elif backend is BackendKind.ROCM:
            archs = build.framework.rocm_archs
    made = _plan_python(build, sources, NoarchVariant(backend), backend)
    return replace(made, archs=_sorted(archs))


def _plan_python(
    build: Build, sources: SourceSet, variant: Variant, backend: BackendKind
) -> VariantBuild:
    """Plan what variants with and without machine code have in common: Python files, and what they need."""
    general = build.general
    more = general.backend_depends.get(backend)
    python = (*general.depends.python, *(more.python if more else ()))
    kernels = (*general.depends.kernels, *(more.kernels if more else ()))
    return VariantBuild(
        variant=variant,
        backend=backend,
        op_id=current_op_id(build, sources, backend),
        module=general.module,
        package=packaged_files(build, sources),
        name=general.name,
        version=general.version,
        license=general.license or "unknown",
        python_depends=tuple(dict.fromkeys(text for text in python if is_known(text))),
        python_requires=tuple(dict.fromkeys(text for text in python if not is_known(text))),
        skip_import_check=build.testing.skip_import_check,
        has_per_torch=any(each.per_torch for each in build.components),
        kernel_depends=tuple(dict.fromkeys(kernels)),
        upstream=general.upstream,
        source=general.source,
    )


def _sorted(archs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(archs), key=_natural))


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders numbers in a text by value."""
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", text)
    )
