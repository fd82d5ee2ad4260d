"""Which files of a project are compiled, which are included, and which are packaged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from kernel_builder.config.model import (
    Build,
    Component,
    Framework,
    TorchFramework,
    TvmFfiFramework,
)
from kernel_builder.sources import SourceSet
from kernel_spec.backend import BackendKind

_CXX = frozenset({".cpp", ".cc", ".cxx", ".c"})
_COMPILED: dict[BackendKind, frozenset[str]] = {
    BackendKind.CPU: _CXX,
    BackendKind.CUDA: _CXX | {".cu"},
    BackendKind.ROCM: _CXX | {".cu", ".hip"},
    BackendKind.METAL: _CXX | {".mm", ".metal"},
    BackendKind.XPU: _CXX | {".sycl"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileUnit:
    """One source file that becomes one object file.

    Attributes:
        source: its POSIX path in the project.
        component: the component that lists it; None for the framework's binding.
        backend: whose compiler takes it: a CUDA variant also carries units of the CPU.
        include: directories of the project to search for headers, in order.
        cxx_flags: flags for the C++ compiler, those of the framework first.
        backend_flags: flags for the device compiler.
        archs: device architectures of this file, as ``build.toml`` spells them.
        depends: native dependencies whose headers it needs.
    """

    source: str
    component: str | None
    backend: BackendKind
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    backend_flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()


def is_compiled(path: str, backend: BackendKind) -> bool:
    """Say whether a listed file is compiled for a backend, rather than included."""
    return PurePosixPath(path).suffix.lower() in _COMPILED.get(backend, frozenset())


def needs_device_compiler(unit: CompileUnit) -> bool:
    """Say whether nvcc takes a file, rather than the C++ compiler."""
    return PurePosixPath(unit.source).suffix.lower() == ".cu"


def plan_units(
    framework: TorchFramework | TvmFfiFramework, components: tuple[Component, ...]
) -> tuple[tuple[CompileUnit, ...], tuple[str, ...]]:
    """Return the files to compile, the binding first, and the files that these include.

    A file that two components list is compiled once, with the flags of both.
    """
    units: dict[str, CompileUnit] = {}
    headers: set[str] = set()
    for path in framework.src:
        if not is_compiled(path, BackendKind.CPU):
            headers.add(path)
            continue
        units[path] = CompileUnit(
            source=path,
            component=None,
            backend=BackendKind.CPU,
            include=_join(framework.include),
            cxx_flags=framework.cxx_flags,
            depends=("torch",) if isinstance(framework, TorchFramework) else (),
        )
    for component in components:
        for path in component.src:
            if not is_compiled(path, component.backend):
                headers.add(path)
                continue
            unit = CompileUnit(
                source=path,
                component=component.name,
                backend=component.backend,
                include=_join(component.include, framework.include),
                cxx_flags=(*framework.cxx_flags, *component.cxx_flags),
                backend_flags=component.backend_flags,
                archs=component.archs,
                depends=component.depends,
            )
            units[path] = _merge(units[path], unit) if path in units else unit
    return tuple(units.values()), tuple(sorted(headers - set(units)))


def _merge(first: CompileUnit, second: CompileUnit) -> CompileUnit:
    return replace(
        first,
        include=_join(first.include, second.include),
        cxx_flags=_join(first.cxx_flags, second.cxx_flags),
        backend_flags=_join(first.backend_flags, second.backend_flags),
        archs=_join(first.archs, second.archs),
        depends=_join(first.depends, second.depends),
    )


def _join(*lists: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for each in lists for text in each))


def packaged_files(build: Build, sources: SourceSet) -> tuple[str, ...]:
    """Return the files of the Python module that are packaged, as POSIX paths in it, sorted.

    Packaged is ``.py``, and what ``pyext`` lists (``.pyi`` where it lists nothing).
    """
    top = f"{build.extension}/{build.general.module}/"
    extensions = _extensions(build.framework)
    return tuple(
        file.path.removeprefix(top)
        for file in sources.extension
        if file.path.startswith(top) and file.path.endswith(extensions)
    )


def _extensions(framework: Framework) -> tuple[str, ...]:
    return tuple(f".{extension}" for extension in ("py", *(framework.pyext or ("pyi",))))


def unpackaged_notes(build: Build, sources: SourceSet) -> list[str]:
    """Name the files of the module that stay behind, since their authors may not expect it."""
    top = f"{build.extension}/{build.general.module}/"
    extensions = _extensions(build.framework)
    return [
        f"{file.path} is not packaged; "
        f'to package it, list "{PurePosixPath(file.path).suffix[1:]}" in pyext'
        for file in sources.extension
        if file.path.startswith(top)
        and not file.path.endswith(extensions)
        and PurePosixPath(file.path).suffix
    ]
