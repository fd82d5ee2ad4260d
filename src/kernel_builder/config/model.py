"""What a ``build.toml`` means, whatever its edition: frozen values, texts as the file spells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_builder.errors import ConfigFault
from kernel_spec.backend import BackendKind
from kernel_spec.metadata import KernelDependency
from kernel_spec.names import RepoId, module_name

CURRENT_EDITION = 5
FILE_NAME = "build.toml"
# Where the Python side of a kernel lies in its project.
TORCH_EXTENSION = "torch-ext"
TVM_FFI_EXTENSION = "tvm-ffi-ext"


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionBounds:
    """The lowest and highest version, each included and compared by major and minor.

    Attributes:
        minver: the lowest, as the file spells it, or None.
        maxver: the highest, as the file spells it, or None.
    """

    minver: str | None = None
    maxver: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Depends:
    """What a kernel needs at run time.

    Attributes:
        python: names of Python packages, as the file spells them (``tvm-ffi``); those that hubs
            have no name for are requirements with versions (``numpy>=1.26``).
        kernels: other kernels.
    """

    python: tuple[str, ...] = ()
    kernels: tuple[KernelDependency, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class General:
    """The ``[general]`` section.

    Attributes:
        name: the kernel's name (``paged-attention``).
        version: its API generation; 1 where an old edition does not say.
        license: an SPDX expression or free text; None where an old edition does not say.
        backends: what it is for, sorted by name, each once.
        upstream: the git URL of the project that it was taken from.
        source: the git URL of its own sources (the ``host:path`` form written as ``ssh://``).
        repo_id: where it is published.
        branch: the branch it is published on, where that is not ``v<version>``.
        depends: what every variant needs at run time.
        backend_depends: what the variants of one backend need besides.
        cuda: the CUDA versions that it is built for.
    """

    name: str
    version: int
    license: str | None
    backends: tuple[BackendKind, ...]
    upstream: str | None = None
    source: str | None = None
    repo_id: RepoId | None = None
    branch: str | None = None
    depends: Depends = Depends()
    backend_depends: Mapping[BackendKind, Depends] = field(default_factory=dict)
    cuda: VersionBounds = VersionBounds()

    @property
    def module(self) -> str:
        """The name of the Python module."""
        return module_name(self.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchFramework:
    """The ``[torch]`` section: ops that a C++ binding registers with torch.

    Attributes:
        src: the binding's files, headers too.
        include: directories to search for headers.
        pyext: the extensions of the files under ``torch-ext`` that are packaged; empty: the
            default of the plan.
        torch: the torch versions that it is built for.
        cxx_flags: flags for the C++ compiler.
        stable_abi: for each backend, the version of torch's stable ABI that it is built for;
            a backend that is not here leaves the choice to the plan.
        noarch: the backends that get a variant of Python alone beside the compiled one.
    """

    src: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    pyext: tuple[str, ...] = ()
    torch: VersionBounds = VersionBounds()
    cxx_flags: tuple[str, ...] = ()
    stable_abi: Mapping[BackendKind, str] = field(default_factory=dict)
    noarch: tuple[BackendKind, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchNoarch:
    """The ``[torch-noarch]`` section: Python and Triton alone, nothing is compiled.

    Attributes:
        pyext: as in :class:`TorchFramework`.
        cuda_capabilities: the CUDA capabilities that it is meant for; empty: all.
        rocm_archs: the ROCm architectures that it is meant for; empty: all.
    """

    pyext: tuple[str, ...] = ()
    cuda_capabilities: tuple[str, ...] = ()
    rocm_archs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TvmFfiFramework:
    """The ``[tvm-ffi]`` section: functions that a C++ binding exports through TVM FFI.

    Attributes: as in :class:`TorchFramework`.
    """

    src: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    pyext: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()


Framework = TorchFramework | TorchNoarch | TvmFfiFramework


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One ``[kernel.<name>]`` table: sources that are compiled for one backend.

    Attributes:
        name: the name of the table; old ``cuda-hipify`` tables make two components, the second
            with ``_rocm`` added.
        backend: cpu, cuda, metal, rocm or xpu.
        depends: native dependencies (``torch``, ``cutlass_4_0``).
        src: the files, headers too, in the order of the file.
        include: directories to search for headers.
        cxx_flags: flags for the C++ compiler.
        backend_flags: flags for the device compiler (``cuda-flags``, ``hip-flags``,
            ``sycl-flags``).
        archs: CUDA capabilities or ROCm architectures; empty: the backend's default list.
        cuda_minver: the lowest CUDA version that compiles it, or None.
        per_torch: whether it is compiled for each release of torch into a library of its own, beside
            the one for torch's stable ABI.
    """

    name: str
    backend: BackendKind
    depends: tuple[str, ...]
    src: tuple[str, ...]
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    backend_flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    cuda_minver: str | None = None
    per_torch: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderSource:
    """One ``[sources.<name>]`` table: an archive of headers, by URL and hash.

    Attributes:
        name: what components list under ``depends``.
        url: where the archive is.
        sha256: the hash of the archive, hex.
        include: directories of the archive to search for headers; nothing else of it is used.
        license: the licence of the headers, an SPDX expression or free text.
    """

    name: str
    url: str
    sha256: str
    include: tuple[str, ...]
    license: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Testing:
    """The ``[test]`` table.

    Attributes:
        python_depends: what tests need besides the kernel, as pip reads it.
        skip_import_check: why the build does not import the variants, or None: it does.
    """

    python_depends: tuple[str, ...] = ()
    skip_import_check: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Build:
    """A whole ``build.toml``.

    Attributes:
        edition: the edition that the file is written in, 1 to 5.
        general: what the kernel is.
        framework: how its functions reach Python.
        components: what is compiled, in the order of the file.
        sources: archives of headers that components depend on, in the order of the file.
        testing: how it is tested.
        warnings: kinds of what is tolerated in old editions, such as ``missing-license``.
        doubts: what is allowed and probably not meant, in the order of the lines.
    """

    edition: int
    general: General
    framework: Framework
    components: tuple[Component, ...] = ()
    sources: tuple[HeaderSource, ...] = ()
    testing: Testing = Testing()
    warnings: tuple[str, ...] = ()
    doubts: tuple[ConfigFault, ...] = ()

    @property
    def extension(self) -> str:
        """The directory of the project that its Python module lies in."""
        is_tvm_ffi = isinstance(self.framework, TvmFfiFramework)
        return TVM_FFI_EXTENSION if is_tvm_ffi else TORCH_EXTENSION
