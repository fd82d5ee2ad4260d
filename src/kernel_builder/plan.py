"""The plan: which variants come out of a project here, and what each is made of. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_builder.config.model import Build
from kernel_builder.sources import SourceSet
from kernel_spec.backend import BackendKind
from kernel_spec.metadata import KernelDependency
from kernel_spec.system import TorchBuild
from kernel_spec.variant import Variant
from kernel_spec.version import MajorMinor


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """What this machine offers to a build.

    Attributes:
        cpu: ``x86_64`` or ``aarch64``.
        os: ``linux``, ``darwin`` or ``windows``.
        torch: the torch to build against, or None.
        missing: for each backend that cannot be compiled here, what it lacks
            (``needs nvcc 13.0``).
    """

    cpu: str
    os: str
    torch: TorchBuild | None
    missing: Mapping[BackendKind, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What of a project to build; an empty selection is everything.

    Attributes:
        backends: only these backends.
        variants: only the variants of these names.
    """

    backends: frozenset[BackendKind] = frozenset()
    variants: frozenset[str] = frozenset()


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


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantBuild:
    """One variant, and everything that it is made of.

    Attributes:
        variant: its name as a value; ``str(variant)`` is the directory under ``build/``.
        backend: the backend that it is for.
        op_id: the namespace of its ops, the stem of its library and ``metadata.id``.
        module: the name of the Python module.
        units: the files to compile, in a fixed order; empty for a variant without machine code.
        headers: listed files that are included, not compiled.
        package: the files of ``torch-ext/<module>`` that are packaged, as POSIX paths in it.
        stable_abi: the version of torch's stable ABI that it is built for, or None for torch's
            full interface.
        torch: the torch that it is built against, or None for a variant without machine code.
        archs: the device architectures for ``metadata.json``, sorted.
        depends: native dependencies of all its units, sorted.
        name: the kernel's name for ``metadata.json``, and so are the rest.
    """

    variant: Variant
    backend: BackendKind
    op_id: str
    module: str
    units: tuple[CompileUnit, ...]
    headers: tuple[str, ...]
    package: tuple[str, ...]
    stable_abi: MajorMinor | None
    torch: TorchBuild | None
    archs: tuple[str, ...]
    depends: tuple[str, ...]
    name: str
    version: int
    license: str
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    upstream: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedBackend:
    """A backend of the project that is not built here.

    Attributes:
        backend: which.
        reason: what is missing, half a sentence.
    """

    backend: BackendKind
    reason: str

    def __str__(self) -> str:
        return f"{self.backend.value}: not built here: {self.reason}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What comes out of a project on a machine.

    Attributes:
        variants: what is built, in the order of their names.
        skipped: what is not, and why.
        notes: what the author should know, such as files that are not packaged.
    """

    variants: tuple[VariantBuild, ...]
    skipped: tuple[SkippedBackend, ...]
    notes: tuple[str, ...] = ()


def plan(
    build: Build, sources: SourceSet, *, host: Host, selection: Selection = Selection()
) -> Plan:
    """Decide which variants come out of a project, and what each is made of.

    Raises:
        SelectionError: a backend or variant was asked for that the project does not have.
    """
    raise NotImplementedError
