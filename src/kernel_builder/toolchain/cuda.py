"""The CUDA toolkit: the pinned wheels by default, or the user's own directory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.settings import Settings
from kernel_builder.toolchain.identity import file_identity
from kernel_builder.toolchain.wheels import fetch_wheels, read_cuda_wheels
from kernel_spec.version import MajorMinor, parse_major_minor

# Inside the unpacked wheels.
_ROOT = Path("nvidia", "cu13")
_VERSION = re.compile(r"^#define\s+CUDART_VERSION\s+(\d+)", re.MULTILINE)
_LIBRARY_DIRECTORIES = ("lib", "lib64", "targets/x86_64-linux/lib")


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaToolchain:
    """A CUDA toolkit.

    Attributes:
        root: its directory.
        version: its version.
        nvcc: the compiler.
        cudart: the shared runtime library, under its versioned name.
        identity: a text that changes with it.
    """

    root: Path
    version: MajorMinor
    nvcc: Path
    cudart: Path
    identity: str

    @property
    def include(self) -> Path:
        """The directory of its headers."""
        return self.root / "include"


def find_cuda_version(settings: Settings, machine: str) -> MajorMinor | str:
    """Return the version that builds get, or what is missing; fetches and starts nothing."""
    if settings.cuda_home is not None:
        try:
            return _read_version(settings.cuda_home)
        except ToolchainError as err:
            return str(err)
    version, wheels = read_cuda_wheels()
    if machine != wheels.machine:
        return f"needs a CUDA toolkit for {machine}: name one with --cuda-home PATH"
    return parse_major_minor(version)


def identify_cuda(settings: Settings) -> str:
    """Return a text that changes with the toolkit that builds get.

    Raises:
        ToolchainError: the user's toolkit is not whole.
    """
    if settings.cuda_home is not None:
        return read_cuda(settings.cuda_home).identity
    return read_cuda_wheels()[1].key


def get_cuda(settings: Settings) -> CudaToolchain:
    """Return the toolkit; the pinned one is fetched at the first time.

    Raises:
        ToolchainUnavailableError: it cannot be fetched.
        ToolchainError: it is not whole.
    """
    if settings.cuda_home is not None:
        return read_cuda(settings.cuda_home)
    _, wheels = read_cuda_wheels()
    variables = {**settings.variables, **settings.pip_variables}
    tree = fetch_wheels(wheels, store=settings.cache / "toolchains", variables=variables)
    return read_cuda(tree / _ROOT, identity=wheels.key)


def read_cuda(root: Path, *, identity: str | None = None) -> CudaToolchain:
    """Read a toolkit.

    Args:
        root: its directory.
        identity: what tells it from others; None: its compiler's file.

    Raises:
        ToolchainError: it is not whole.
    """
    version = _read_version(root)
    nvcc = root / "bin" / "nvcc"
    places = [root / name / f"libcudart.so.{version.major}" for name in _LIBRARY_DIRECTORIES]
    cudart = next((place for place in places if place.is_file()), None)
    if not nvcc.is_file() or cudart is None:
        lacking = "bin/nvcc" if not nvcc.is_file() else f"libcudart.so.{version.major}"
        raise ToolchainError(
            f"{root} is no whole CUDA toolkit: it has no {lacking}; remove the directory where "
            "the builder made it, or name another with --cuda-home PATH"
        )
    return CudaToolchain(
        root=root,
        version=version,
        nvcc=nvcc,
        cudart=cudart,
        identity=identity or f"{file_identity(nvcc)} {file_identity(cudart)}",
    )


def _read_version(root: Path) -> MajorMinor:
    header = root / "include" / "cuda_runtime_api.h"
    match = _VERSION.search(header.read_text(errors="replace")) if header.is_file() else None
    if match is None:
        raise ToolchainError(
            f"needs a CUDA toolkit: {header} does not say CUDART_VERSION; "
            "--cuda-home takes the directory that holds bin/nvcc and include"
        )
    return MajorMinor(int(match[1]) // 1000, int(match[1]) % 1000 // 10)
