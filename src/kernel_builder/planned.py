"""What a plan is made of: the machine, the selection, the variants and what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_builder.config.model import TORCH_EXTENSION, TVM_FFI_EXTENSION, HeaderSource
from kernel_builder.units import CompileUnit
from kernel_spec.backend import UNVERSIONED, Backend, BackendKind
from kernel_spec.framework import TorchStableAbi, TvmFfi
from kernel_spec.metadata import KernelDependency
from kernel_spec.per_torch import format_per_torch
from kernel_spec.system import TorchBuild
from kernel_spec.variant import ArchVariant, Variant
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
        toolkits: the version of the toolkit of each backend whose variants carry one.
        more_toolkits: further toolkits of a backend; each gives a variant of its own.
        pinned_torches: the releases whose pinned headers variants of the full interface are built
            against, in place of ``torch``; none: ``torch``.
    """

    cpu: str
    os: str
    torch: TorchBuild | None
    missing: Mapping[BackendKind, str] = field(default_factory=dict)
    toolkits: Mapping[BackendKind, MajorMinor] = field(default_factory=dict)
    more_toolkits: Mapping[BackendKind, tuple[MajorMinor, ...]] = field(default_factory=dict)
    pinned_torches: tuple[TorchBuild, ...] = ()

    def targets(self, backend: BackendKind) -> tuple[Backend, ...]:
        """Return what a backend can be compiled for here; empty: its toolkit is not there."""
        if backend in UNVERSIONED:
            return (Backend(backend),)
        if backend not in self.toolkits:
            return ()
        versions = (self.toolkits[backend], *self.more_toolkits.get(backend, ()))
        return tuple(Backend(backend, version) for version in versions)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """What of a project to build; an empty selection is everything.

    Attributes:
        backends: only these backends.
        variants: only the variants of these names.
        archs: only these CUDA capabilities, in place of the toolkit's list.
        per_torch: only these releases of torch get a library of their own; None: all.
    """

    backends: frozenset[BackendKind] = frozenset()
    variants: frozenset[str] = frozenset()
    archs: tuple[str, ...] = ()
    per_torch: frozenset[MajorMinor] | None = None

    @property
    def names_some(self) -> bool:
        """Whether it names what to build, so that nothing of it may be passed over."""
        return bool(self.backends or self.variants)


EVERYTHING = Selection()


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
        package: the files of the Python module that are packaged, as POSIX paths in it.
        torch: the torch that it is built against, or None for a variant without torch or without
            machine code.
        archs: the device architectures for ``metadata.json``, sorted.
        depends: native dependencies of all its units, sorted.
        sources: the ``[sources]`` tables that these name.
        python_depends: Python packages that it imports, by the names that hubs know.
        python_requires: those that hubs have no name for, with their versions.
        skip_import_check: why it is not imported after the build, or None: it is.
        has_per_torch: whether the project has per-torch components, which ``_ops.py`` is to load.
        per_torch: its per-torch libraries, oldest torch first, each a build of one library.
        is_part: whether it is one of those.
        is_pinned: whether it is built against the pinned headers of ``torch``, installed or not.
        name: the kernel's name for ``metadata.json``, and so are the rest.
    """

    variant: Variant
    backend: BackendKind
    op_id: str
    module: str
    package: tuple[str, ...]
    name: str
    version: int
    license: str
    units: tuple[CompileUnit, ...] = ()
    headers: tuple[str, ...] = ()
    torch: TorchBuild | None = None
    archs: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    upstream: str | None = None
    source: str | None = None
    sources: tuple[HeaderSource, ...] = ()
    python_requires: tuple[str, ...] = ()
    skip_import_check: str | None = None
    has_per_torch: bool = False
    per_torch: tuple[VariantBuild, ...] = ()
    is_part: bool = False
    is_pinned: bool = False

    @property
    def release(self) -> MajorMinor | None:
        """The release of the torch that it is built against; None: of none."""
        return None if self.torch is None else self.torch.release

    @property
    def stable_abi(self) -> MajorMinor | None:
        """The version of torch's stable ABI that it is built for; None: for another interface, or none."""
        match self.variant:
            case ArchVariant(framework=TorchStableAbi(version=version)):
                return version
            case _:
                return None

    @property
    def tvm_ffi(self) -> MajorMinor | None:
        """The version of TVM FFI's interface that it is built for; None: it is torch's."""
        match self.variant:
            case ArchVariant(framework=TvmFfi(version=version)):
                return version
            case _:
                return None

    @property
    def toolkit(self) -> MajorMinor | None:
        """The version of its backend's toolkit; None: there is none of a version."""
        return self.variant.backend.version if isinstance(self.variant, ArchVariant) else None

    @property
    def library(self) -> str:
        """The name of its library; that of TVM FFI is for no Python in particular."""
        if self.is_part and self.release is not None:
            return format_per_torch(self.op_id, self.release)
        return f"{self.op_id}.so" if self.tvm_ffi is not None else f"{self.op_id}.abi3.so"

    @property
    def extension(self) -> str:
        """The directory of the project that its Python module lies in."""
        return TORCH_EXTENSION if self.tvm_ffi is None else TVM_FFI_EXTENSION


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
