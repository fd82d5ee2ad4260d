"""The flags of the build, sorted into what CMake calls options, definitions and include directories. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.environment import Environment
from kernel_builder.flags import compile_flags, group_flags
from kernel_builder.known import read_known
from kernel_builder.planned import VariantBuild
from kernel_builder.toolchain.cpu import CpuToolchain, Family
from kernel_builder.toolchain.cuda import CudaToolchain, find_optional
from kernel_builder.toolchain.link import LinkKit
from kernel_builder.toolchain.torch import TorchInstall
from kernel_builder.toolchain.tvm_ffi import TvmFfiInstall
from kernel_builder.units import CompileUnit, needs_device_compiler
from kernel_spec.backend import BackendKind

# Where things lie is only known where CMake runs; kernel.cmake adds these directories itself.
_ELSEWHERE = Path("/elsewhere")


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitFlags:
    """The flags of one file, without those that kernel.cmake or CMake itself adds.

    Attributes:
        unit: the file.
        device: whether nvcc takes it.
        definitions: macros of every file of the backend, without ``-D``.
        include: directories of the project, in order.
        options: flags of our own.
        gnu_options: those of them that only GCC understands, in order.
        author: the flags of the author, which come last, each with the name that nvcc's help has to
            have for it, or None.
    """

    unit: CompileUnit
    device: bool
    definitions: tuple[str, ...]
    include: tuple[str, ...]
    options: tuple[str, ...]
    gnu_options: frozenset[str]
    author: tuple[tuple[str, str | None], ...]


def sort_flags(unit: CompileUnit, build: VariantBuild, project: Path) -> UnitFlags:
    """Take the flags that the build compiles a file with, and sort them.

    Args:
        unit: the file; its ``archs`` are left out, since they depend on the toolkit.
        build: the variant.
        project: the directory of the project.

    Raises:
        ToolchainError: the file cannot be compiled for its backend.
    """
    plain = CompileUnit(
        source=unit.source,
        component=unit.component,
        backend=unit.backend,
        include=unit.include,
        cxx_flags=unit.cxx_flags,
        backend_flags=unit.backend_flags,
    )
    gnu = compile_flags(plain, build, _environment(build, Family.GCC), project)
    other = set(compile_flags(plain, build, _environment(build, Family.CLANG), project))
    author = _author(plain)
    head = gnu[: len(gnu) - len(author)]
    assert gnu[len(head) :] == author, "the author's flags come last"
    definitions, include, options = [], [], []
    words = iter(head)
    for flag in words:
        if flag == "-isystem":
            next(words)
        elif flag.startswith("-D") and flag != "-DNDEBUG":
            definitions.append(flag[2:])
        elif flag.startswith("-I") and flag != "-I../gen":
            include.append(flag[2:])
        elif not _is_left_out(flag):
            options.append(flag)
    return UnitFlags(
        unit=unit,
        device=needs_device_compiler(unit),
        definitions=tuple(definitions),
        include=tuple(include),
        options=tuple(options),
        gnu_options=frozenset(options) - other,
        author=tuple(_name_optional(author, device=needs_device_compiler(unit))),
    )


def _name_optional(flags: tuple[str, ...], *, device: bool) -> Iterator[tuple[str, str | None]]:
    """Yield each flag with its name where nvcc can do without it; a word that is its value has the same."""
    for words in group_flags(flags):
        name = find_optional(words[0]) if device else None
        yield from ((word, name) for word in words)


def _author(unit: CompileUnit) -> tuple[str, ...]:
    """Return the flags of the author as the build hands them on."""
    if not needs_device_compiler(unit):
        return unit.cxx_flags
    host = ("-Xcompiler=" + flag.replace(",", "\\,") for flag in unit.cxx_flags)
    return (*host, *unit.backend_flags)


def _is_left_out(flag: str) -> bool:
    """Say whether a flag does not go into ``CMakeLists.txt``.

    Some are added by CMake or by kernel.cmake, as the machine wants it. Others do nothing but give
    the same bytes on every machine, which no export promises.
    """
    return (
        "-frandom-seed=" in flag
        or "--orig_src_path_name=" in flag
        or flag in ("-O3", "-DNDEBUG", "-I../gen")
        or flag.startswith(("-std=", "-isystem"))
        or "-ffile-prefix-map=" in flag
        or flag in ("-iquote.", "-Xcompiler=-iquote.")
    )


def shared_options(flags: Iterable[UnitFlags]) -> tuple[str, ...]:
    """Return the options that all files have, in order."""
    listed = list(flags)
    if not listed:
        return ()
    common = set(listed[0].options).intersection(*(each.options for each in listed))
    return tuple(dict.fromkeys(each for each in listed[0].options if each in common))


def _environment(build: VariantBuild, family: Family) -> Environment:
    """Return a place to build that is nowhere: only its shape enters the flags."""
    torch = None
    if build.torch is not None:
        torch = TorchInstall(root=_ELSEWHERE / "torch", build=build.torch)
    cuda = CudaToolchain(
        root=_ELSEWHERE / "cuda",
        version=read_known().cuda_archs[0][0],
        nvcc=_ELSEWHERE / "nvcc",
        include=_ELSEWHERE / "cuda" / "include",
        cudart=_ELSEWHERE / "cudart",
        identity="",
    )
    return Environment(
        toolchain=CpuToolchain(
            command=("c++",),
            family=family,
            version="",
            cpu="x86_64",
            identity="",
            files={},
            shared=(),
        ),
        torch=torch,
        libraries=(),
        python_include=None if torch is None else _ELSEWHERE / "python",
        kit=LinkKit(system=_ELSEWHERE, framework=_ELSEWHERE, compat=_ELSEWHERE),
        cuda=cuda if build.backend is BackendKind.CUDA else None,
        tvm_ffi=None if torch is not None else TvmFfiInstall(root=_ELSEWHERE, release=""),
    )
