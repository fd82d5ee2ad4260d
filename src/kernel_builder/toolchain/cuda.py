"""The CUDA toolkit: the pinned wheels by default, or the user's own directory."""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from kernel_builder.errors import SelectionError, ToolchainError, ToolchainUnavailableError
from kernel_builder.process import run
from kernel_builder.settings import Settings
from kernel_builder.toolchain.identity import file_identity
from kernel_builder.toolchain.pip_watch import OnFetch
from kernel_builder.toolchain.wheels import WheelSet, fetch_wheels, read_cuda_wheels
from kernel_spec.version import MajorMinor

# Inside the unpacked wheels.
_ROOT = Path("nvidia", "cu13")
_VERSION = re.compile(r"^#define\s+CUDART_VERSION\s+(\d+)", re.MULTILINE)
_LIBRARY_DIRECTORIES = (
    "lib",
    "lib64",
    *(f"targets/{target}/lib" for target in ("x86_64-linux", "sbsa-linux", "aarch64-linux")),
    *(f"lib/{machine}-linux-gnu" for machine in ("x86_64", "aarch64")),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaToolchain:
    """A CUDA toolkit.

    Attributes:
        root: its directory.
        version: its version.
        nvcc: the compiler.
        cudart: the shared runtime library, under its versioned name.
        identity: a text that changes with it.
        options: the long options of the compiler, by its help; None: it was not asked.
    """

    root: Path
    version: MajorMinor
    nvcc: Path
    cudart: Path
    identity: str
    options: frozenset[str] | None = None

    @property
    def include(self) -> Path:
        """The directory of its headers."""
        return self.root / "include"

    def takes(self, flag: str) -> bool:
        """Say whether the compiler takes a flag, of those that a build can do without; any other: yes."""
        name = flag.lstrip("-").partition("=")[0]
        return self.options is None or name not in read_optional_flags() or name in self.options


@cache
def read_optional_flags() -> frozenset[str]:
    """Read the names of the flags that a build can do without."""
    place = files("kernel_builder") / "toolchain" / "nvcc-flags.toml"
    return frozenset(tomllib.loads(place.read_text("utf-8"))["optional"])


def list_pinned(machine: str) -> tuple[MajorMinor, ...]:
    """Return the versions that are pinned for a machine, the default first."""
    return tuple(each.version for each in read_cuda_wheels() if each.machine == machine)


def find_cuda_versions(settings: Settings, machine: str) -> tuple[MajorMinor, ...] | str:
    """Return the versions that builds get, or what is missing; fetches and starts nothing.

    Raises:
        SelectionError: a toolkit is asked for by a version that is not pinned.
    """
    if settings.cuda_home is not None:
        try:
            return (_read_version(settings.cuda_home),)
        except ToolchainError as err:
            return str(err)
    pinned = list_pinned(machine)
    unknown = sorted(set(settings.cuda_versions) - set(pinned))
    if unknown:
        have = ", ".join(map(str, pinned)) or f"none for {machine}"
        raise SelectionError(
            f"--cuda: no pinned toolkit {', '.join(map(str, unknown))}; pinned: {have}. "
            "Name an installed toolkit of another version: --cuda-home PATH"
        )
    if not pinned:
        return f"needs a CUDA toolkit for {machine}: name one with --cuda-home PATH"
    return settings.cuda_versions or pinned[:1]


def identify_cuda(settings: Settings, version: MajorMinor | None = None) -> str:
    """Return a text that changes with the toolkit that builds get.

    Raises:
        ToolchainError: the user's toolkit is not whole.
    """
    if settings.cuda_home is not None:
        return _identify(*_find_files(settings.cuda_home))
    return _find_pinned(version).key


def get_cuda(
    settings: Settings, version: MajorMinor | None = None, *, on_fetch: OnFetch | None = None
) -> CudaToolchain:
    """Return the toolkit; a pinned one is fetched at the first time.

    Args:
        settings: the user's own toolkit, or where the pinned ones are kept.
        version: which of the pinned ones; None: the default.
        on_fetch: who is told how far fetching is.

    Raises:
        ToolchainUnavailableError: it cannot be fetched.
        ToolchainError: it is not whole.
    """
    if settings.cuda_home is not None:
        return read_cuda(settings.cuda_home, variables=settings.variables)
    wheels = _find_pinned(version)
    variables = {**settings.variables, **settings.pip_variables}
    store = settings.cache / "toolchains"
    tree = fetch_wheels(wheels, store=store, variables=variables, on_fetch=on_fetch)
    return read_cuda(tree / _ROOT, identity=wheels.key)


def _find_pinned(version: MajorMinor | None) -> WheelSet:
    """Return a pinned toolkit for this machine; the plan knows that it is there."""
    machine = platform.machine()
    for each in read_cuda_wheels():
        if each.machine == machine and version in (None, each.version):
            return each
    raise ToolchainUnavailableError(
        f"no CUDA toolkit {version or ''} is pinned for {machine}; name one with --cuda-home PATH"
    )


def read_cuda(
    root: Path, *, identity: str | None = None, variables: Mapping[str, str] | None = None
) -> CudaToolchain:
    """Read a toolkit.

    Args:
        root: its directory.
        identity: what tells it from others, where it is a pinned one; None: its files, and the
            compiler is asked what it is.
        variables: the environment of its compiler.

    Raises:
        ToolchainError: it is not whole, or its compiler is of another version than its headers.
    """
    if re.search(r"\s", str(root)):
        raise ToolchainError(
            f"{root}: nvcc cannot work in a directory whose name has a blank; link to it from "
            "another place (ln -s), and name that: --cuda-home PATH"
        )
    version = _read_version(root)
    nvcc, cudart = _find_files(root)
    options = None
    if identity is None:
        options = _ask(nvcc, version, variables)
        identity = _identify(nvcc, cudart)
    return CudaToolchain(
        root=root, version=version, nvcc=nvcc, cudart=cudart, identity=identity, options=options
    )


def _find_files(root: Path) -> tuple[Path, Path]:
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
    return nvcc, cudart


def _identify(nvcc: Path, cudart: Path) -> str:
    return f"{file_identity(nvcc)} {file_identity(cudart)}"


def _ask(nvcc: Path, version: MajorMinor, variables: Mapping[str, str] | None) -> frozenset[str]:
    """Ask a compiler for its version and return its long options."""
    said = run([nvcc, "--version"], variables=variables).output
    found = re.search(r"release (\d+)\.(\d+)", said)
    if found is None or MajorMinor(int(found[1]), int(found[2])) != version:
        release = "no release" if found is None else f"release {found[1]}.{found[2]}"
        raise ToolchainError(
            f"{nvcc} says {release}, and the headers beside it are of CUDA {version}; "
            "name a directory that holds one whole toolkit: --cuda-home PATH"
        )
    help_text = run([nvcc, "--help"], variables=variables).output
    return frozenset(re.findall(r"^--([\w-]+)", help_text, re.MULTILINE))


def _read_version(root: Path) -> MajorMinor:
    header = root / "include" / "cuda_runtime_api.h"
    match = _VERSION.search(header.read_text(errors="replace")) if header.is_file() else None
    if match is None:
        raise ToolchainError(
            f"needs a CUDA toolkit: {header} does not say CUDART_VERSION; "
            "--cuda-home takes the directory that holds bin/nvcc and include"
        )
    return MajorMinor(int(match[1]) // 1000, int(match[1]) % 1000 // 10)
