"""The compiler's flags of one file: ours first, the author's last, so that these win."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_builder.archs import gencode_flags
from kernel_builder.config.model import TORCH_EXTENSION, TVM_FFI_EXTENSION
from kernel_builder.environment import Environment
from kernel_builder.errors import ToolchainError
from kernel_builder.planned import VariantBuild
from kernel_builder.toolchain.cpu import Family
from kernel_builder.units import CompileUnit, needs_device_compiler
from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor

CXX20_SINCE = MajorMinor(2, 12)
_CXX20_CUDA = MajorMinor(12, 0)
# Python 3.9 and later: every library is one file for all of them.
_LIMITED_API = "0x03090000"


def compile_flags(
    unit: CompileUnit, build: VariantBuild, environment: Environment, stage: Path
) -> tuple[str, ...]:
    """Compose the flags of one file; those of the author come last, so they win.

    Raises:
        ToolchainError: the file is for a backend that cannot be compiled here.
    """
    if unit.backend not in (BackendKind.CPU, BackendKind.CUDA):
        raise ToolchainError(
            f"{unit.source}: files for {unit.backend.value} cannot be compiled here"
        )
    if needs_device_compiler(unit):
        return _device_flags(unit, build, environment, stage)
    flags = [f"-std={_standard(environment)}", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden"]
    if environment.toolchain.family is Family.GCC:
        # A GNU-unique symbol is one for the whole process, even across kernels.
        flags += ["-fno-gnu-unique", f"-frandom-seed={unit.source}"]
    return (
        *flags,
        *_prefix_maps(environment, stage),
        *_definitions(build),
        *_search_path(unit, environment, stage),
        *unit.cxx_flags,
    )


def preprocessor_flags(
    unit: CompileUnit, build: VariantBuild, environment: Environment, stage: Path
) -> tuple[str, ...]:
    """Compose the flags that show a file to the C++ preprocessor as its compiler sees it."""
    return (
        f"-std={_standard(environment)}",
        "-O3",
        "-DNDEBUG",
        "-fPIC",
        *_definitions(build),
        name_extension(build),
        *_search_path(unit, environment, stage),
        *unit.cxx_flags,
        *(flag for flag in unit.backend_flags if flag.startswith(("-D", "-U")) and len(flag) > 2),
    )


def _device_flags(
    unit: CompileUnit, build: VariantBuild, environment: Environment, stage: Path
) -> tuple[str, ...]:
    """Compose the flags of a file for nvcc; the C++ compiler gets the same as elsewhere."""
    host = ["-fPIC", "-fvisibility=hidden", *_prefix_maps(environment, stage), "-iquote."]
    if environment.toolchain.family is Family.GCC:
        host.append("-fno-gnu-unique")
    # The names of device code in unnamed namespaces have a hash of the file's whole path in them.
    place = f"--orig_src_path_name={unit.source}".replace(",", "\\,")
    return (
        f"-std={_device_standard(environment)}",
        "-O3",
        "-DNDEBUG",
        "--expt-relaxed-constexpr",
        *_seed(unit, environment),
        f"-Xcudafe={place}",
        f"-Xcicc={place}",
        "-DENABLE_FP8",
        *gencode_flags(unit.archs),
        *_for_host(host),
        *_definitions(build),
        *_own_includes(unit, stage),
        "-I../gen",
        *_depend_includes(unit, environment),
        *(word for path in environment.includes for word in ("-isystem", str(path))),
        *([] if environment.cuda_headers is None else ["-isystem", str(environment.cuda_headers)]),
        *_for_host(unit.cxx_flags),
        *_known_flags(unit.backend_flags, environment),
    )


def _seed(unit: CompileUnit, environment: Environment) -> tuple[str, ...]:
    """Name what random names are made from; where nvcc does not take it, the C++ compiler does."""
    flag = f"-frandom-seed={unit.source}"
    own = environment.cuda is None or environment.cuda.takes(flag)
    return (flag,) if own else _for_host([flag])


def _device_standard(environment: Environment) -> str:
    """Return the standard that nvcc compiles by.

    Raises:
        ToolchainError: torch's headers need a later one than the toolkit has.
    """
    standard, cuda = _standard(environment), environment.cuda
    if standard == "c++20" and cuda is not None and cuda.version < _CXX20_CUDA:
        torch = "" if environment.torch is None else environment.torch.build.version
        raise ToolchainError(
            f"the headers of torch {torch} need C++20, which nvcc has since CUDA {_CXX20_CUDA}, and "
            f"{cuda.root} is CUDA {cuda.version}; name a later one: --cuda-home PATH"
        )
    return standard


def _known_flags(flags: Iterable[str], environment: Environment) -> tuple[str, ...]:
    """Leave out an author's flags that this nvcc does not know and that change nothing there."""
    return tuple(
        word for words in group_flags(flags) if _takes(environment, words) for word in words
    )


def list_left_out(build: VariantBuild, environment: Environment) -> tuple[str, ...]:
    """Return the author's flags that this nvcc is called without, each once."""
    units = (unit for unit in build.units if needs_device_compiler(unit))
    left = [
        " ".join(words)
        for unit in units
        for words in group_flags(unit.backend_flags)
        if not _takes(environment, words)
    ]
    return tuple(dict.fromkeys(left))


def _takes(environment: Environment, words: tuple[str, ...]) -> bool:
    return environment.cuda is None or environment.cuda.takes(words[0])


def group_flags(flags: Iterable[str]) -> list[tuple[str, ...]]:
    """Put each flag together with the word after it that is its value."""
    groups: list[tuple[str, ...]] = []
    for flag in flags:
        if (
            groups
            and not flag.startswith("-")
            and len(groups[-1]) == 1
            and "=" not in groups[-1][0]
        ):
            groups[-1] = (*groups[-1], flag)
        else:
            groups.append((flag,))
    return groups


def _for_host(flags: Iterable[str]) -> tuple[str, ...]:
    """Hand flags through to the C++ compiler; nvcc would split them at commas."""
    return tuple("-Xcompiler=" + flag.replace(",", "\\,") for flag in flags)


def _standard(environment: Environment) -> str:
    torch = environment.torch
    return "c++20" if torch is not None and torch.build.release >= CXX20_SINCE else "c++17"


def _search_path(unit: CompileUnit, environment: Environment, stage: Path) -> tuple[str, ...]:
    """Say where the C++ compiler finds headers, and so the preprocessor too."""
    return (
        "-iquote.",
        *_own_includes(unit, stage),
        "-I../gen",
        *_depend_includes(unit, environment),
        *(f"-isystem{path}" for path in environment.includes),
        *(f"-isystem{path}" for path in _cuda_includes(environment)),
    )


def _own_includes(unit: CompileUnit, stage: Path) -> tuple[str, ...]:
    own = [*unit.include, "csrc", TORCH_EXTENSION, TVM_FFI_EXTENSION]
    return tuple(f"-I{path}" for path in dict.fromkeys(own) if (stage / path).is_dir())


def _cuda_includes(environment: Environment) -> list[Path]:
    """Return where the headers of CUDA are; nvcc finds those of its toolkit by itself.

    To name a directory that every compiler searches last would put it first, and hide the headers
    of the C++ library that hand on to those in it.
    """
    cuda = environment.cuda
    toolkit = None if cuda is None or cuda.shares_include else cuda.include
    return [path for path in (toolkit, environment.cuda_headers) if path is not None]


def _depend_includes(unit: CompileUnit, environment: Environment) -> tuple[str, ...]:
    """Return where the headers of the native dependencies of a file are."""
    used = [each for each in environment.depends if each.origin.name in unit.depends]
    return tuple(
        word for each in used for path in each.include_dirs for word in ("-isystem", str(path))
    )


def _prefix_maps(environment: Environment, stage: Path) -> tuple[str, ...]:
    """Keep this machine's paths out of the objects."""
    maps = []
    if environment.torch is not None:
        maps.append(f"-ffile-prefix-map={environment.torch.root}=torch")
    if environment.tvm_ffi is not None:
        maps.append(f"-ffile-prefix-map={environment.tvm_ffi.root}=tvm-ffi")
    if environment.python_include is not None:
        maps.append(f"-ffile-prefix-map={environment.python_include}=python")
    maps.append(f"-ffile-prefix-map={stage.parent}=.")
    if environment.cuda is not None and not environment.cuda.shares_include:
        maps.append(f"-ffile-prefix-map={environment.cuda.root}=cuda")
    if environment.cuda_headers is not None:
        maps.append(f"-ffile-prefix-map={environment.cuda_headers}=cuda-headers")
    maps += [f"-ffile-prefix-map={each.root}={each.origin.name}" for each in environment.depends]
    return tuple(maps)


def _definitions(build: VariantBuild) -> tuple[str, ...]:
    names = [f"-D{build.backend.value.upper()}_KERNEL"]
    if build.tvm_ffi is None:
        names.append(f"-DPy_LIMITED_API={_LIMITED_API}")
    if build.backend is BackendKind.CUDA:
        names.append("-DUSE_CUDA=1")
    if build.stable_abi is not None:
        names.append(f"-DTORCH_TARGET_VERSION={format_target(build.stable_abi)}")
    return tuple(names)


def name_extension(build: VariantBuild) -> str:
    """Tell the sources the id of the variant, under the name that their framework gives it."""
    framework = "TORCH" if build.tvm_ffi is None else "TVM_FFI"
    return f"-D{framework}_EXTENSION_NAME={build.op_id}"


def format_target(version: MajorMinor) -> str:
    """Write a version as ``TORCH_TARGET_VERSION``: major in the top byte, minor in the next."""
    return f"0x{version.major << 56 | version.minor << 48:016x}"
