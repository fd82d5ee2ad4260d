"""The compiler's flags of one file: ours first, the author's last, so that these win."""

from __future__ import annotations

from pathlib import Path

from kernel_builder.environment import Environment
from kernel_builder.errors import ToolchainError
from kernel_builder.plan import VariantBuild
from kernel_builder.toolchain.cpu import Family
from kernel_builder.units import CompileUnit
from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor

_CXX20_SINCE = MajorMinor(2, 12)
# Python 3.9 and later: every library is one file for all of them.
_LIMITED_API = "0x03090000"


def compile_flags(
    unit: CompileUnit, build: VariantBuild, environment: Environment, stage: Path
) -> tuple[str, ...]:
    """Compose the flags of one file; those of the author come last, so they win.

    Raises:
        ToolchainError: the file is for a backend that cannot be compiled here.
    """
    if unit.backend is not BackendKind.CPU:
        raise ToolchainError(
            f"{unit.source}: files for {unit.backend.value} cannot be compiled here"
        )
    torch = environment.torch
    standard = "c++20" if torch.build.release >= _CXX20_SINCE else "c++17"
    own = [*unit.include, "csrc", "torch-ext"]
    include = [path for path in dict.fromkeys(own) if (stage / path).is_dir()]
    flags = [f"-std={standard}", "-O3", "-DNDEBUG", "-fPIC", "-fvisibility=hidden"]
    if environment.toolchain.family is Family.GCC:
        # A GNU-unique symbol is one for the whole process, even across kernels.
        flags += ["-fno-gnu-unique", f"-frandom-seed={unit.source}"]
    flags += [
        f"-ffile-prefix-map={torch.root}=torch",
        f"-ffile-prefix-map={environment.python_include}=python",
        f"-ffile-prefix-map={stage.parent}=.",
        f"-D{build.backend.value.upper()}_KERNEL",
        f"-DPy_LIMITED_API={_LIMITED_API}",
    ]
    if build.stable_abi is not None:
        flags.append(f"-DTORCH_TARGET_VERSION={format_target(build.stable_abi)}")
    return (
        *flags,
        "-iquote.",
        *(f"-I{path}" for path in include),
        "-I../gen",
        *(f"-isystem{path}" for path in torch.include_dirs),
        f"-isystem{environment.python_include}",
        *unit.cxx_flags,
    )


def format_target(version: MajorMinor) -> str:
    """Write a version as ``TORCH_TARGET_VERSION``: major in the top byte, minor in the next."""
    return f"0x{version.major << 56 | version.minor << 48:016x}"
