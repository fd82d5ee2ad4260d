"""Toolchains from pinned wheels: fetched through pip, checked by hash, whole or not there."""

from __future__ import annotations

import hashlib
import platform
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from kernel_builder.errors import CommandError, ToolchainError, ToolchainUnavailableError
from kernel_builder.kept import keep_tree
from kernel_builder.process import run
from kernel_builder.toolchain.pip_watch import OnFetch, watch_pip
from kernel_spec.amounts import format_count
from kernel_spec.version import MajorMinor, parse_major_minor

_SECONDS = 1800
# What wheels for another processor may be tagged with, as the pinned ones are (PEP 600).
_LINUX = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel, by name, version and hash."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelSet:
    """The wheels that are one toolchain.

    Attributes:
        name: such as ``cuda-13.0``.
        version: the version of the toolchain.
        machine: the processor that its programs run on.
        wheels: what it is made of.
        otherwise: what to do where they cannot be fetched, beside letting pip reach them.
    """

    name: str
    version: MajorMinor
    machine: str
    wheels: tuple[Wheel, ...]
    otherwise: str = "run kernel-builder fetch once where it can"

    @property
    def requirements(self) -> str:
        """The wheels as pip reads them."""
        return "".join(f"{wheel}\n" for wheel in self.wheels)

    @property
    def key(self) -> str:
        """The name of its directory, which changes with every wheel."""
        return f"{self.name}-{hashlib.sha256(self.requirements.encode()).hexdigest()[:16]}"


@cache
def read_cuda_wheels() -> tuple[WheelSet, ...]:
    """Read the pinned CUDA toolkits, for all machines; the first of a machine is its default."""
    place = files("kernel_builder") / "toolchain" / "cuda-wheels.toml"
    return tuple(
        WheelSet(
            name=f"cuda-{each['version']}",
            version=parse_major_minor(each["version"]),
            machine=each["machine"],
            wheels=tuple(Wheel(**wheel) for wheel in each["wheels"]),
            otherwise="run kernel-builder fetch once where it can, or name an installed toolkit: "
            "--cuda-home PATH",
        )
        for each in tomllib.loads(place.read_text("utf-8"))["toolkit"]
    )


def fetch_wheels(
    wheels: WheelSet,
    *,
    store: Path,
    variables: Mapping[str, str],
    on_fetch: OnFetch | None = None,
) -> Path:
    """Return the directory that holds the unpacked wheels; they are fetched where it is not there.

    Args:
        wheels: what to fetch.
        store: the directory of all toolchains.
        variables: the environment of pip, which names the user's package index.
        on_fetch: who is told how far it is.

    Raises:
        ToolchainUnavailableError: pip is not there, or cannot get a wheel.
        ToolchainError: a wheel has another hash.
    """

    def make(scratch: Path) -> None:
        if on_fetch is not None:
            count = format_count(len(wheels.wheels), "wheel")
            on_fetch(f"{wheels.name} is not here yet: {count} through pip", 0, 0)
        _install(wheels, scratch, variables, on_fetch)
        if on_fetch is not None:
            tree = (scratch / "tree").rglob("*")
            size = sum(path.stat().st_size for path in tree if path.is_file())
            on_fetch(f"{wheels.name} is in {target}", size, size)

    def tell_waiting() -> None:
        if on_fetch is not None:
            on_fetch(f"{wheels.name}: another build is fetching it; waiting for it", 0, 0)

    target = store / wheels.key
    return keep_tree(target, make, on_wait=tell_waiting)


def _install(
    wheels: WheelSet, scratch: Path, variables: Mapping[str, str], on_fetch: OnFetch | None
) -> None:
    listed = scratch / "requirements.txt"
    listed.write_text(wheels.requirements)
    temporary = scratch / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--progress-bar", "off"]
    command += ["--no-input", "--no-deps", "--no-compile", "--require-hashes"]
    command += ["--only-binary=:all:", "--target", str(scratch / "tree"), "-r", str(listed)]
    if wheels.machine != platform.machine():
        command += [f"--platform={tag}_{wheels.machine}" for tag in _LINUX]
    try:
        with watch_pip(temporary, on_fetch) as read_line:
            run(
                command,
                variables={**variables, "TMPDIR": str(temporary)},
                timeout=_SECONDS,
                on_line=read_line,
            )
    except CommandError as err:
        raise blame_pip(err)(
            f"{wheels.name} cannot be fetched with pip ({explain_pip(err)}); let pip reach a package index "
            f"(PIP_INDEX_URL, PIP_FIND_LINKS), or {wheels.otherwise}"
        ) from err


def blame_pip(err: CommandError) -> type[ToolchainError]:
    """Return what went wrong: a wheel of another hash is no toolchain that could not be had."""
    is_other = "DO NOT MATCH THE HASHES" in err.finished.output
    return ToolchainError if is_other else ToolchainUnavailableError


def explain_pip(err: CommandError) -> str:
    """Return why pip failed, in its own words: the last error that it wrote, else its last line."""
    lines = err.finished.output.splitlines()
    said = [line for line in lines if line.lstrip().startswith("ERROR")]
    said = said or [line for line in lines if "ERROR" in line.upper()]
    return said[-1].strip() if said else str(err).splitlines()[-1]
