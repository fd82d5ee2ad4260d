"""What this machine offers to a build, and what one variant is built with."""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.depends import Dependency, fetch_dependency, find_origins
from kernel_builder.errors import SelectionError, ToolchainError
from kernel_builder.inputs import identify_cuda_headers
from kernel_builder.known import read_known
from kernel_builder.per_torch import describe_build
from kernel_builder.planned import Host, VariantBuild
from kernel_builder.policy import read_version_caps
from kernel_builder.settings import Settings
from kernel_builder.toolchain import stubs
from kernel_builder.toolchain.cpu import (
    CpuToolchain,
    describe_missing,
    find_compiler,
    get_compiler,
    read_toolchain,
    target_cpu,
)
from kernel_builder.toolchain.cuda import CudaToolchain, find_cuda_versions, get_cuda, identify_cuda
from kernel_builder.toolchain.cuda_home import find_files
from kernel_builder.toolchain.link import LinkKit, make_link_kit
from kernel_builder.toolchain.meter import make_meter
from kernel_builder.toolchain.pip_watch import OnFetch
from kernel_builder.toolchain.torch import TorchInstall, find_torch, get_torch
from kernel_builder.toolchain.torch_cuda import make_cuda_headers
from kernel_builder.toolchain.torch_headers import fetch_torch_headers
from kernel_builder.toolchain.torch_releases import PinnedTorch, find_release, read_torch_releases
from kernel_builder.toolchain.tvm_ffi import TvmFfiInstall, get_tvm_ffi, identify_tvm_ffi
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.variant import ArchVariant
from kernel_spec.version import MajorMinor

_OLDEST_STABLE = (2, 10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """What one variant with machine code is built with.

    Attributes:
        toolchain: the C++ compiler.
        torch: the torch whose headers are used; None for a kernel of TVM FFI.
        libraries: the framework's libraries that the kernel asks for, such as ``torch_cpu``.
        python_include: the directory of ``Python.h``; None for a kernel of TVM FFI, which calls
            nothing of Python.
        kit: what the link needs.
        cuda: the CUDA toolkit of a variant for CUDA.
        cuda_headers: for torch's full interface for CUDA, the headers that are lacking.
        meter: the program that tells what each compiler takes.
        depends: native dependencies besides torch, sorted by name.
        tvm_ffi: the TVM FFI whose headers are used; None for a kernel of torch.
    """

    toolchain: CpuToolchain
    torch: TorchInstall | None
    libraries: tuple[str, ...]
    python_include: Path | None
    kit: LinkKit
    cuda: CudaToolchain | None = None
    cuda_headers: Path | None = None
    meter: Path | None = None
    depends: tuple[Dependency, ...] = ()
    tvm_ffi: TvmFfiInstall | None = None

    @property
    def includes(self) -> tuple[Path, ...]:
        """The directories of the framework's headers, and of Python's."""
        torch = () if self.torch is None else self.torch.include_dirs
        tvm_ffi = () if self.tvm_ffi is None else (self.tvm_ffi.include,)
        python = () if self.python_include is None else (self.python_include,)
        return (*torch, *tvm_ffi, *python)


def detect_host(settings: Settings) -> Host:
    """Say what this machine offers; cheap, and no program is started.

    Raises:
        SelectionError: a toolkit or a torch is asked for by a version that is not pinned.
    """
    torch = find_torch()
    missing = dict(read_known().uncompiled)
    if find_compiler(settings) is None:
        missing[BackendKind.CPU] = missing[BackendKind.CUDA] = describe_missing(settings)
    toolkits: dict[BackendKind, MajorMinor] = {}
    more: dict[BackendKind, tuple[MajorMinor, ...]] = {}
    cpu = target_cpu(settings)
    cuda = find_cuda_versions(settings, cpu)
    if isinstance(cuda, str):
        missing[BackendKind.CUDA] = cuda
    else:
        toolkits[BackendKind.CUDA], more[BackendKind.CUDA] = cuda[0], cuda[1:]
    return Host(
        cpu=cpu,
        os=platform.system().lower(),
        torch=None if torch is None else torch.build,
        missing=missing,
        toolkits=toolkits,
        more_toolkits=more,
        pinned_torches=_find_torches(settings, cpu),
    )


def _find_torches(settings: Settings, cpu: str) -> tuple[TorchBuild, ...]:
    """Return the pinned releases that are asked for.

    Raises:
        SelectionError: one that is not pinned.
    """
    if not settings.torch_versions:
        return ()
    pinned = read_torch_releases(cpu) if platform.system() == "Linux" else ()
    known = {each.release: describe_build(each) for each in pinned}
    unknown = sorted(set(settings.torch_versions) - set(known))
    if unknown:
        have = ", ".join(map(str, sorted(known)))
        raise SelectionError(
            f"--torch {', '.join(map(str, unknown))}: its headers are not pinned; expected one of "
            f"{have or 'none: there are some for Linux alone'}. Without --torch, the installed torch is "
            "built against"
        )
    return tuple(known[each] for each in settings.torch_versions)


def choose_torches(releases: Iterable[MajorMinor], cpu: str) -> tuple[MajorMinor, ...]:
    """Return the releases whose pinned headers named variants need; none: the installed torch does.

    Args:
        releases: the releases that variants of the full interface are for.
        cpu: the processor that they are for.
    """
    wanted = tuple(dict.fromkeys(releases))
    installed = find_torch()
    if installed is not None and all(each == installed.build.release for each in wanted):
        return ()
    return tuple(each for each in wanted if find_release(cpu, each) is not None)


def prepare_environment(
    build: VariantBuild, settings: Settings, *, on_fetch: OnFetch | None = None
) -> Environment:
    """Find all that a variant is built with, and make its link stubs.

    Args:
        build: the variant.
        settings: what the environment and the command line say.
        on_fetch: who is told how far fetching a toolkit is.

    Raises:
        ToolchainError: something is not there, or too old.
        CommandError: the compiler cannot be used.
    """
    compiler = get_compiler(settings)
    torch = None
    if build.tvm_ffi is None:
        torch = fetch_pinned(build, settings, on_fetch) if build.is_pinned else get_torch()
        _require_torch(build, torch)
    origins = find_origins(build.depends, build.sources, settings)
    include = None if torch is None else _find_python_headers()
    toolchain = read_toolchain(compiler, settings)
    libraries = framework_libraries(build)
    cuda = None
    if build.backend is BackendKind.CUDA:
        cuda = get_cuda(settings, build.toolkit, on_fetch=on_fetch)
    store = settings.cache / "stubs"
    full = build.stable_abi is None
    return Environment(
        toolchain=toolchain,
        torch=torch,
        libraries=libraries,
        python_include=include,
        cuda=cuda,
        meter=None
        if toolchain.cpu != platform.machine()
        else make_meter(toolchain, variables=settings.variables, store=store),
        cuda_headers=make_cuda_headers(torch, cuda, store=store)
        if torch and cuda and full
        else None,
        kit=make_link_kit(toolchain, libraries, variables=settings.variables, store=store),
        depends=tuple(fetch_dependency(origin, settings) for origin in origins),
        tvm_ffi=None if torch is not None else get_tvm_ffi(settings),
    )


def fetch_pinned(build: VariantBuild, settings: Settings, on_fetch: OnFetch | None) -> TorchInstall:
    """Return the pinned headers of the torch that a library is for.

    Raises:
        ToolchainError: they cannot be had, or are others than those that are pinned.
    """
    return fetch_torch_headers(
        find_pinned(build),
        store=settings.toolchains,
        variables=settings.for_pip,
        on_fetch=on_fetch,
    )


def find_pinned(build: VariantBuild) -> PinnedTorch:
    """Return the pinned torch of a library that is built against one."""
    assert isinstance(build.variant, ArchVariant)
    pinned = find_release(build.variant.cpu, build.release)
    assert pinned is not None  # the plan has such libraries for pinned releases alone
    return pinned


def _find_python_headers() -> Path:
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").is_file():
        raise ToolchainError(
            f"{include}/Python.h not found: Python {platform.python_version()} came without its "
            "headers; install them (Debian: apt-get install python3-dev; Fedora: dnf install "
            "python3-devel)"
        )
    return include


def framework_libraries(build: VariantBuild) -> tuple[str, ...]:
    """Return the libraries of torch, or of TVM FFI, that a variant asks for."""
    if build.tvm_ffi is not None:
        return ("tvm_ffi",)
    if build.stable_abi is not None:
        return ("torch",)
    cuda = ("torch_cuda", "c10_cuda") if build.backend is BackendKind.CUDA else ()
    return ("torch", "torch_cpu", "c10", *cuda)


def identify_environment(build: VariantBuild, settings: Settings) -> str:
    """Return a text that changes when the same sources might give other bytes; starts nothing.

    Raises:
        ToolchainError: the compiler or torch is not there.
    """
    facts = [str(stubs.GENERATOR), read_version_caps().name, sys.version]
    if build.units:
        facts += [get_compiler(settings).identity, _identify_framework(build)]
    if build.units and build.backend is BackendKind.CUDA:
        facts.append(identify_cuda(settings, build.toolkit))
        facts.append(_identify_own_headers(settings))
    if build.units:
        facts += [repr(origin) for origin in find_origins(build.depends, build.sources, settings)]
    facts += [find_pinned(part).key for part in build.per_torch]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _identify_framework(build: VariantBuild) -> str:
    if build.is_pinned:
        return find_pinned(build).key
    return get_torch().identity if build.tvm_ffi is None else identify_tvm_ffi()


def _identify_own_headers(settings: Settings) -> str:
    """Return a text that changes with the headers of the user's toolkit: they change without its compiler.

    Objects do not need it, since each record of one names the headers that it was made of.
    """
    if settings.cuda_home is None:
        return ""
    found = find_files(settings.cuda_home)
    return identify_cuda_headers(found.include, shared=found.shares_include)


def _require_torch(build: VariantBuild, torch: TorchInstall) -> None:
    release = torch.build.release
    stable = build.stable_abi
    if stable is not None and (stable.major, stable.minor) < _OLDEST_STABLE:
        raise ToolchainError(
            f"{build.variant}: torch's stable ABI begins with 2.10, found stable-abi = "
            f'"{stable}" in build.toml; write stable-abi = "2.10"'
        )
    if stable is not None and release < stable:
        raise ToolchainError(
            f"{build.variant}: torch {torch.build.version} is too old for the stable ABI of "
            f"{stable}; install torch {stable} or newer, or lower stable-abi in build.toml"
        )
    if stable is None and build.torch is not None and build.torch.release != release:
        raise ToolchainError(
            f"{build.variant}: planned for torch {build.torch.version}, found "
            f"{torch.build.version}; build in an environment with torch {build.torch.release}"
        )
