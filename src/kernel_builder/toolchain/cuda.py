"""The CUDA toolkit: the pinned wheels by default, or the user's own directory."""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

from kernel_builder.errors import SelectionError, ToolchainError, ToolchainUnavailableError
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cpu import target_cpu
from kernel_builder.toolchain.cuda_home import (
    NOT_ASKED,
    CudaAnswer,
    CudaFiles,
    ask_compiler,
    find_files,
    find_outside,
)
from kernel_builder.toolchain.pip_watch import OnFetch
from kernel_builder.toolchain.wheels import WheelSet, fetch_wheels, read_cuda_wheels
from kernel_spec.version import MajorMinor

# The key of ``metadata.json``, below our own.
TOOLKIT = "cuda-toolkit"
# Inside the unpacked wheels.
_ROOT = Path("nvidia", "cu13")
# Of a toolkit, this is linked with: it is the one wheel whose file for the variant's processor counts.
_RUNTIME = "nvidia-cuda-runtime"


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaToolchain(CudaFiles):
    """A CUDA toolkit to build with; its ``cudart`` is that of the processor that is built for.

    Attributes:
        identity: a text that changes with it.
        answer: what its compiler says of itself, where it is the user's own.
        outside: what belongs to it and does not lie in its directory.
    """

    identity: str
    answer: CudaAnswer = NOT_ASKED
    outside: tuple[Path, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """How its compiler is called."""
        return (*self.answer.launcher, str(self.nvcc))

    def takes(self, flag: str) -> bool:
        """Say whether the compiler takes a flag, of those that a build can do without; any other: yes."""
        name, options = find_optional(flag), self.answer.options
        return options is None or name is None or name in options


def find_optional(flag: str) -> str | None:
    """Return the name of a flag of nvcc that a build can do without; None: another one."""
    name = flag.lstrip("-").partition("=")[0]
    return name if name in read_optional_flags() else None


@cache
def read_optional_flags() -> frozenset[str]:
    """Read the names of the flags that a build can do without."""
    place = files("kernel_builder") / "toolchain" / "nvcc-flags.toml"
    return frozenset(tomllib.loads(place.read_text("utf-8"))["optional"])


def describe_toolkit(cuda: CudaToolchain | None) -> dict[str, str]:
    """Return what ``metadata.json`` says of the user's own toolkit, under our own key.

    Of a pinned one, the builder's version and the name of the variant say all.
    """
    return {} if cuda is None or cuda.answer.release is None else {TOOLKIT: cuda.answer.release}


def list_pinned(cpu: str) -> tuple[MajorMinor, ...]:
    """Return the versions that are pinned for building here for a processor, the default first.

    The compiler is this machine's, and what is linked with the processor's.
    """
    wheels = read_cuda_wheels()
    linked = {each.version for each in wheels if each.machine == cpu}
    own = (each.version for each in wheels if each.machine == platform.machine())
    return tuple(version for version in own if version in linked)


def find_cuda_versions(settings: Settings, cpu: str) -> tuple[MajorMinor, ...] | str:
    """Return the versions that builds for a processor get, or what is missing; fetches and starts nothing.

    Raises:
        SelectionError: a toolkit is asked for by a version that is not pinned, or by a directory that
            holds none.
    """
    machine = platform.machine()
    if settings.cuda_home is not None:
        if cpu != machine:
            return f"is compiled for {cpu} by a pinned toolkit alone on {machine}: leave out --cuda-home"
        try:
            return (find_files(settings.cuda_home).version,)
        except ToolchainError as err:
            raise SelectionError(f"--cuda-home {err}") from err
    pinned = list_pinned(cpu)
    unknown = sorted(set(settings.cuda_versions) - set(pinned))
    if unknown:
        have = ", ".join(map(str, pinned)) or f"none for {cpu}"
        more = "Name an installed toolkit of another version: --cuda-home PATH"
        if cpu != machine:
            more = f"No other one is used to build for {cpu} on {machine}"
        raise SelectionError(
            f"no pinned toolkit {', '.join(map(str, unknown))}; pinned: {have}. {more}"
        )
    if not pinned:
        return f"needs a CUDA toolkit for {cpu}: name one with --cuda-home PATH"
    return settings.cuda_versions or pinned[:1]


def identify_cuda(settings: Settings, version: MajorMinor | None = None) -> str:
    """Return a text that changes with the toolkit that builds get.

    Raises:
        ToolchainError: the user's toolkit is not whole.
    """
    if settings.cuda_home is not None:
        return find_files(settings.cuda_home).identify()
    return _identify(_list_wheels(settings, version))


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
    trees = fetch_cuda(settings, version, on_fetch=on_fetch)
    cuda = read_cuda(trees[0] / _ROOT, identity=_identify(_list_wheels(settings, version)))
    # With one tree, this is what it has.
    return replace(cuda, cudart=trees[-1] / cuda.cudart.relative_to(trees[0]))


def fetch_cuda(
    settings: Settings, version: MajorMinor | None = None, *, on_fetch: OnFetch | None = None
) -> tuple[Path, ...]:
    """Return the directories of a pinned toolkit: of this machine's, and of another processor's runtime.

    Raises:
        ToolchainUnavailableError: it cannot be fetched.
        ToolchainError: a wheel has another hash.
    """
    store, variables = settings.toolchains, settings.for_pip
    return tuple(
        fetch_wheels(each, store=store, variables=variables, on_fetch=on_fetch)
        for each in _list_wheels(settings, version)
    )


def name_cuda(settings: Settings, version: MajorMinor | None) -> str:
    """Return what people call a pinned toolkit, with the processor where that is another one."""
    return _list_wheels(settings, version)[-1].name


def _list_wheels(settings: Settings, version: MajorMinor | None) -> tuple[WheelSet, ...]:
    """Return what a pinned toolkit is made of: that of this machine, and the runtime of another processor."""
    machine, cpu = platform.machine(), target_cpu(settings)
    toolkit = _find_pinned(version, machine)
    if cpu == machine:
        return (toolkit,)
    other = _find_pinned(toolkit.version, cpu)
    runtime = tuple(each for each in other.wheels if each.name == _RUNTIME)
    return toolkit, replace(other, name=f"{other.name}-{cpu}", wheels=runtime)


def _identify(wheels: tuple[WheelSet, ...]) -> str:
    return " ".join(each.key for each in wheels)


def _find_pinned(version: MajorMinor | None, machine: str) -> WheelSet:
    """Return a pinned toolkit for a machine; the plan knows that it is there."""
    for each in read_cuda_wheels():
        if each.machine == machine and version in (None, each.version):
            return each
    raise ToolchainUnavailableError(
        f"no CUDA toolkit {version or ''} is pinned for {machine}; name one with --cuda-home PATH"
    )


def read_cuda(
    home: Path, *, identity: str | None = None, variables: Mapping[str, str] | None = None
) -> CudaToolchain:
    """Read a toolkit.

    Args:
        home: its directory.
        identity: what tells it from others, where it is a pinned one; None: its files, and the
            compiler is asked what it is.
        variables: the environment of its compiler.

    Raises:
        ToolchainError: it is not whole, or its compiler is of another version than its headers.
    """
    if re.search(r"\s", str(home)):
        raise ToolchainError(
            f"{home}: nvcc cannot work in a directory whose name has a blank; link to it from "
            "another place (ln -s), and name that: --cuda-home PATH"
        )
    found = find_files(home)
    answer = ask_compiler(found, variables or {}) if identity is None else NOT_ASKED
    return CudaToolchain(
        root=found.root,
        version=found.version,
        nvcc=found.nvcc,
        include=found.include,
        cudart=found.cudart,
        identity=identity or found.identify(),
        answer=answer,
        outside=find_outside(found, answer.programs) if identity is None else (),
    )
