"""Toolchains from pinned wheels: fetched through pip, checked by hash, whole or not there."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from kernel_builder.errors import CommandError, ToolchainUnavailableError
from kernel_builder.process import run
from kernel_spec.version import MajorMinor, parse_major_minor

_SECONDS = 1800


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
    otherwise: str = "build once where it can"

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
            otherwise="name an installed toolkit: --cuda-home PATH",
        )
        for each in tomllib.loads(place.read_text("utf-8"))["toolkit"]
    )


def fetch_wheels(wheels: WheelSet, *, store: Path, variables: Mapping[str, str]) -> Path:
    """Return the directory that holds the unpacked wheels; they are fetched where it is not there.

    Args:
        wheels: what to fetch.
        store: the directory of all toolchains.
        variables: the environment of pip, which names the user's package index.

    Raises:
        ToolchainUnavailableError: pip is not there, or cannot get a wheel of that hash.
    """
    target = store / wheels.key
    if target.is_dir():
        return target
    from filelock import FileLock

    store.mkdir(parents=True, exist_ok=True)
    with FileLock(store / f"{wheels.key}.lock"):
        if target.is_dir():
            return target
        for old in store.glob(f".{wheels.key}-*"):
            shutil.rmtree(old, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{wheels.key}-", dir=store))
        try:
            _install(wheels, scratch, variables)
            (scratch / "tree").rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


def _install(wheels: WheelSet, scratch: Path, variables: Mapping[str, str]) -> None:
    listed = scratch / "requirements.txt"
    listed.write_text(wheels.requirements)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--no-deps", "--no-compile", "--require-hashes"]
    command += ["--only-binary=:all:", "--target", str(scratch / "tree"), "-r", str(listed)]
    try:
        run(command, variables=variables, timeout=_SECONDS)
    except CommandError as err:
        said = [line for line in err.finished.output.splitlines() if "ERROR" in line.upper()]
        why = said[-1].strip() if said else str(err).splitlines()[-1]
        raise ToolchainUnavailableError(
            f"{wheels.name} cannot be fetched with pip ({why}); let pip reach a package index "
            f"(PIP_INDEX_URL, PIP_FIND_LINKS), or {wheels.otherwise}"
        ) from err
