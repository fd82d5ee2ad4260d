"""What each backend of a project is made of, for any CUDA toolkit that may be there later. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kernel_builder.config.general import version_key
from kernel_builder.config.model import Build, TorchFramework
from kernel_builder.errors import ArchError, ExportError
from kernel_builder.known import read_known
from kernel_builder.plan import plan
from kernel_builder.planned import Host, Plan, Selection, VariantBuild
from kernel_builder.sources import SourceSet
from kernel_builder.units import CompileUnit, needs_device_compiler, unpackaged_notes
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

_UNIQUE = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
# Stands for whatever torch is installed later, where build.toml sets no bound.
_NEWEST_TORCH = MajorMinor(2, 99)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolkitRange:
    """The CUDA toolkits from one version up to the next one that gives something else.

    Attributes:
        since: the lowest version.
        archs: for each file for nvcc, the capabilities that it is compiled for; a file that is
            not here is not compiled.
    """

    since: MajorMinor
    archs: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendExport:
    """One backend, as the exports describe it.

    Attributes:
        build: what the build makes of it, with the newest toolkit.
        toolkits: for CUDA, what depends on the toolkit, newest first.
    """

    build: VariantBuild
    toolkits: tuple[ToolkitRange, ...] = ()

    @property
    def backend(self) -> BackendKind:
        """Which."""
        return self.build.backend

    def since(self, unit: CompileUnit) -> MajorMinor | None:
        """Return the lowest toolkit that compiles a file, or None where each does."""
        if not self.toolkits or not needs_device_compiler(unit):
            return None
        having = [each.since for each in self.toolkits if unit.source in each.archs]
        return min(having) if len(having) < len(self.toolkits) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportPlan:
    """What of a project is exported.

    Attributes:
        backends: the backends, by name.
        notes: which are left out, and why.
    """

    backends: tuple[BackendExport, ...]
    notes: tuple[str, ...]


def plan_export(
    build: Build,
    sources: SourceSet,
    *,
    backends: Iterable[BackendKind] = (),
    unique: str | None = None,
) -> ExportPlan:
    """Plan the exports of a project. They are the same on every machine.

    Args:
        build: the ``build.toml``.
        sources: the project's files.
        backends: only these; none: all.
        unique: the last part of the op ids in place of the hash of the sources.

    Raises:
        ArchError: no toolkit compiles a component.
        ExportError: no backend can be exported, or ``unique`` is no part of a name.
        SelectionError: the project has no such backend.
    """
    chosen = frozenset(backends)
    if unique is not None:
        unique = unique.replace("-", "_")
        if not _UNIQUE.fullmatch(unique):
            raise ExportError(
                f'the unique part of the op ids is "{unique}"; expected letters, digits and "_", '
                "64 at most, since it becomes part of a C++ name"
            )
    planned = _plan_newest(build, sources, chosen)
    notes = [str(each) for each in planned.skipped]
    found = []
    for variant in planned.variants:
        for_cuda = variant.backend is BackendKind.CUDA and variant.units
        stated = f"_{variant.module}_{variant.backend.value}_{unique}"
        found.append(
            BackendExport(
                build=variant if unique is None else replace(variant, op_id=stated),
                toolkits=_plan_toolkits(build, sources) if for_cuda else (),
            )
        )
    if not found:
        lines = "".join(f"\n  {note}" for note in notes)
        raise ExportError(f"{build.general.name}: none of its backends can be exported{lines}")
    found.sort(key=lambda each: each.backend.value)
    notes += _dropped_notes(planned)
    notes += [
        f"[kernel.{each.name}] is left out: per-torch libraries are built by kernel-builder alone; "
        "the kernel works without"
        for each in build.components
        if each.per_torch
    ]
    return ExportPlan(backends=tuple(found), notes=(*notes, *unpackaged_notes(build, sources)))


def _dropped_notes(planned: Plan) -> list[str]:
    """Return what the plan says of architectures that are asked for and not compiled.

    The variant is named by its backend: its name would tell of a torch that is made up.
    """
    return [
        note.replace(str(variant.variant), variant.backend.value, 1)
        for variant in planned.variants
        for note in planned.notes
        if note.startswith(f"{variant.variant}: ") and " is not compiled" in note
    ]


def _plan_newest(build: Build, sources: SourceSet, backends: frozenset[BackendKind]) -> Plan:
    """Plan with the newest toolkit that compiles something of every component.

    Raises:
        ArchError: none does; what is wrong with the newest.
    """
    failure: ArchError | None = None
    without_cuda: Plan | None = None
    for version in _toolkit_versions(build):
        try:
            planned = _plan_with(build, sources, backends, version)
        except ArchError as err:
            failure = failure or err
            continue
        if not any(each.backend is BackendKind.CUDA for each in planned.skipped):
            return planned
        without_cuda = without_cuda or planned
    if without_cuda is not None:
        return without_cuda
    assert failure is not None
    raise failure


def _plan_toolkits(build: Build, sources: SourceSet) -> tuple[ToolkitRange, ...]:
    """Plan for every toolkit that may give something else, and join those that give the same."""
    found: list[ToolkitRange] = []
    cuda = frozenset({BackendKind.CUDA})
    for version in _toolkit_versions(build):
        try:
            planned = _plan_with(build, sources, cuda, version)
        except ArchError:
            continue
        for variant in planned.variants:
            archs = {
                unit.source: unit.archs for unit in variant.units if needs_device_compiler(unit)
            }
            if found and found[-1].archs == archs:
                found.pop()
            found.append(ToolkitRange(since=version, archs=archs))
    return tuple(found)


def _toolkit_versions(build: Build) -> tuple[MajorMinor, ...]:
    """Return the toolkits at which something may change, newest first."""
    versions = {max(since, MajorMinor(11, 0)) for since, _ in read_known().cuda_archs}
    versions |= {since for _, since in read_known().cuda_suffixes.values()}
    bounds = build.general.cuda
    stated = [bounds.minver, bounds.maxver, *(each.cuda_minver for each in build.components)]
    versions.update(MajorMinor(*version_key(text)) for text in stated if text is not None)
    return tuple(sorted(versions, reverse=True))


def _plan_with(
    build: Build, sources: SourceSet, backends: frozenset[BackendKind], toolkit: MajorMinor
) -> Plan:
    """Plan for a machine that has everything, so that the exports do not depend on this one."""
    torch = _choose_torch(build)
    host = Host(
        cpu="x86_64",
        os="linux",
        torch=TorchBuild(version=f"{torch}.0", release=torch),
        missing=dict(read_known().uncompiled),
        toolkits={BackendKind.CUDA: toolkit},
    )
    return plan(build, sources, host=host, selection=Selection(backends=backends))


def _choose_torch(build: Build) -> MajorMinor:
    """Return a torch that the bounds allow; CMake looks at the one that is there."""
    framework = build.framework
    if isinstance(framework, TorchFramework) and framework.torch.maxver is not None:
        return MajorMinor(*version_key(framework.torch.maxver))
    return _NEWEST_TORCH
