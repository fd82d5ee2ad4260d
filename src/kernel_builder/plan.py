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
from kernel_builder.plan_notes import note_project, note_variant
from kernel_builder.planned import Host, Plan, Selection, SkippedBackend, VariantBuild
from kernel_builder.sources import SourceFile, SourceSet
from kernel_builder.targets import choose_cuda
from kernel_builder.toolchain.tvm_ffi import pinned_interface
from kernel_builder.units import packaged_files, plan_units
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.framework import Torch, TorchStableAbi, TvmFfi
from kernel_spec.system import TorchBuild
from kernel_spec.variant import ArchVariant, NoarchVariant, Variant
from kernel_spec.version import MajorMinor, parse_major_minor


def plan(
    build: Build, sources: SourceSet, *, host: Host, selection: Selection | None = None
) -> Plan:
    """Decide which variants come out of a project, and what each is made of.

    Raises:
        SelectionError: a backend or variant was asked for that the project does not have.
        ArchError: of the architectures of a component, none can be compiled.
    """
    selection = selection or Selection()
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
    variants.sort(key=lambda variant: str(variant.variant))
    notes += note_project(build, sources, variants)
    if selection.variants:
        _check_variants(variants, skipped, selection)
        variants = [one for one in variants if str(one.variant) in selection.variants]
        skipped = []
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
        lines = [
            f"no variant {', '.join(unknown)} here; expected one of {', '.join(names)} (list-variants --matrix shows what others need)"
        ]
        raise SelectionError("\n".join([*lines, *(f"  {each}" for each in skipped)]))


def _plan_backend(
    build: Build, sources: SourceSet, backend: BackendKind, host: Host, asked: tuple[str, ...]
) -> Iterator[tuple[VariantBuild | str, tuple[str, ...]]]:
    """Plan the variants of a backend, each with notes, or say why there is none here."""
    components = components_of(build, backend)
    match build.framework:
        case TvmFfiFramework() if not components and backend is not BackendKind.CPU:
            yield f"no [kernel] table and no file of [tvm-ffi] is for {backend.value}", ()
        case TorchNoarch():
            yield _noarch(build, sources, backend), ()
        case TorchFramework() if not components:
            yield _noarch(build, sources, backend), ()
        case TorchFramework() | TvmFfiFramework() as framework:
            if isinstance(framework, TorchFramework) and backend in framework.noarch:
                yield _noarch(build, sources, backend), ()
            refusal = _refuse_host(framework, sources, backend, components, host)
            if refusal is not None:
                yield refusal, ()
                return
            for target in host.targets(backend):
                yield _plan_compiled(
                    build, framework, sources, target, components, host=host, asked=asked
                )


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


def _refuse_host(
    framework: TorchFramework | TvmFfiFramework,
    sources: SourceSet,
    backend: BackendKind,
    components: tuple[Component, ...],
    host: Host,
) -> str | None:
    """Say why a backend cannot be compiled here, or None."""
    if backend in host.missing:
        return host.missing[backend]
    if host.torch is None and isinstance(framework, TorchFramework):
        return "needs torch (pip install torch)"
    if not host.targets(backend):
        return f"needs a toolkit for {backend.value}, and none was found"
    if host.torch is None or isinstance(framework, TvmFfiFramework):
        return None
    abi = _stable_abi(framework, backend, _files_of(sources, framework, components))
    return _refuse_torch(framework, host.torch, abi)


def _plan_compiled(
    build: Build,
    framework: TorchFramework | TvmFfiFramework,
    sources: SourceSet,
    target: Backend,
    components: tuple[Component, ...],
    *,
    host: Host,
    asked: tuple[str, ...],
) -> tuple[VariantBuild | str, tuple[str, ...]]:
    """Plan a variant with machine code, or say why there is none for this toolkit.

    Raises:
        ArchError: a component has no architecture that can be compiled.
    """
    interface = _choose_interface(framework, sources, target.kind, components, host)
    notes: tuple[str, ...] = ()
    if target.kind is BackendKind.CUDA and target.version is not None:
        choice = choose_cuda(build, components, target.version, asked=asked)
        if isinstance(choice, str):
            return choice, ()
        components, notes = choice.components, choice.notes
    made = _arch(build, framework, sources, target, components, interface=interface, host=host)
    return made, notes


def _choose_interface(
    framework: TorchFramework | TvmFfiFramework,
    sources: SourceSet,
    backend: BackendKind,
    components: tuple[Component, ...],
    host: Host,
) -> Torch | TorchStableAbi | TvmFfi:
    """Return the interface that a variant is built for; for torch's full one, torch is there."""
    if isinstance(framework, TvmFfiFramework):
        return TvmFfi(pinned_interface())
    abi = _stable_abi(framework, backend, _files_of(sources, framework, components))
    if abi is not None:
        return TorchStableAbi(abi)
    assert host.torch is not None
    return Torch(host.torch.release, host.torch.cxx11_abi if host.os == "linux" else None)


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
    """Say why the installed torch cannot be built against, or None."""
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
    return _variant(build, sources, NoarchVariant(backend), backend, archs=archs)


def _arch(
    build: Build,
    framework: TorchFramework | TvmFfiFramework,
    sources: SourceSet,
    target: Backend,
    components: tuple[Component, ...],
    *,
    interface: Torch | TorchStableAbi | TvmFfi,
    host: Host,
) -> VariantBuild:
    """Write a planned variant with machine code out."""
    units, headers = plan_units(framework, components)
    own = [each for each in components if each.backend is target.kind]
    depends = {name for each in components for name in each.depends}
    variant = _variant(
        build,
        sources,
        ArchVariant(interface, target, host.cpu, host.os),
        target.kind,
        archs=tuple(arch for component in own for arch in component.archs),
    )
    return replace(
        variant,
        units=units,
        headers=headers,
        stable_abi=interface.version if isinstance(interface, TorchStableAbi) else None,
        torch=None if isinstance(interface, TvmFfi) else host.torch,
        tvm_ffi=interface.version if isinstance(interface, TvmFfi) else None,
        depends=tuple(sorted(depends)),
        sources=tuple(source for source in build.sources if source.name in depends),
    )


def _variant(
    build: Build,
    sources: SourceSet,
    variant: Variant,
    backend: BackendKind,
    *,
    archs: tuple[str, ...],
) -> VariantBuild:
    """Return what variants with and without machine code have in common."""
    general = build.general
    more = general.backend_depends.get(backend)
    python = (*general.depends.python, *(more.python if more else ()))
    kernels = (*general.depends.kernels, *(more.kernels if more else ()))
    return VariantBuild(
        variant=variant,
        backend=backend,
        op_id=current_op_id(build, sources, backend),
        module=general.module,
        units=(),
        headers=(),
        package=packaged_files(build, sources),
        stable_abi=None,
        torch=None,
        archs=tuple(sorted(set(archs), key=_natural)),
        depends=(),
        name=general.name,
        version=general.version,
        license=general.license or "unknown",
        python_depends=tuple(dict.fromkeys(text for text in python if is_known(text))),
        python_requires=tuple(dict.fromkeys(text for text in python if not is_known(text))),
        skip_import_check=build.testing.skip_import_check,
        kernel_depends=tuple(dict.fromkeys(kernels)),
        upstream=general.upstream,
        source=general.source,
    )


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that orders numbers in a text by value."""
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|\D+", text)
    )
