"""TVM FFI: its pinned wheel, which kernels are compiled and loaded with, whatever is installed here."""

from __future__ import annotations

import platform
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.settings import Settings
from kernel_builder.toolchain.pip_watch import OnFetch
from kernel_builder.toolchain.wheels import Wheel, WheelSet, fetch_wheels
from kernel_spec.version import MajorMinor, parse_major_minor

DISTRIBUTION = "apache-tvm-ffi"
LIBRARY = "libtvm_ffi.so"


@dataclass(frozen=True, kw_only=True, slots=True)
class TvmFfiInstall:
    """TVM FFI's wheel, unpacked.

    Attributes:
        root: the directory that the package lies in, as Python's search path takes it.
        release: its version, such as ``0.1.15.post2``.
    """

    root: Path
    release: str

    @property
    def include(self) -> Path:
        """The directory of its headers, DLPack's among them."""
        return self.root / "tvm_ffi" / "include"

    @property
    def library(self) -> Path:
        """The library that kernels call."""
        return self.root / "tvm_ffi" / "lib" / LIBRARY


def describe_pinned() -> dict[str, str]:
    """Return what a lock and a variant's metadata say of it; fetches nothing.

    The hash is that of its headers, which are equal in the wheels of every Python.
    """
    data = _read()
    return {
        "license": data["license"],
        "origin": DISTRIBUTION,
        "sha256": data["headers"],
        "version": data["version"],
    }


def pinned_interface() -> MajorMinor:
    """Return the version of TVM FFI's interface that kernels are built for."""
    return parse_major_minor(_read()["version"])


def identify_tvm_ffi() -> str:
    """Return a text that changes with the pinned release; fetches nothing."""
    return f"{DISTRIBUTION} {_read()['version']}"


def name_tvm_ffi() -> str:
    """Return what people call the pinned release."""
    return f"tvm-ffi {_read()['version']}"


def get_tvm_ffi(settings: Settings, *, on_fetch: OnFetch | None = None) -> TvmFfiInstall:
    """Return the pinned TVM FFI, which is fetched at the first time.

    Args:
        settings: where it is kept, and the environment of pip.
        on_fetch: who is told how far fetching is.

    Raises:
        ToolchainUnavailableError: it has no wheel for this Python, or pip cannot get it.
    """
    data = _read()
    root = fetch_wheels(
        _choose_wheels(data, platform.machine(), _python_tag()),
        store=settings.toolchains,
        variables=settings.for_pip,
        on_fetch=on_fetch,
    )
    return TvmFfiInstall(root=root, release=data["version"])


def _choose_wheels(data: dict[str, Any], machine: str, tag: str) -> WheelSet:
    wheels = data["wheels"].get(machine, {})
    if tag not in wheels:
        have = ", ".join(
            f"{each} on {name}" for name, tags in data["wheels"].items() for each in tags
        )
        raise ToolchainUnavailableError(
            f"{DISTRIBUTION} {data['version']} has no wheel for {tag} on {machine}; it has some for "
            f"{have}: run kernel-builder with one of those Pythons"
        )
    own = Wheel(DISTRIBUTION, data["version"], wheels[tag])
    return WheelSet(
        name=f"tvm-ffi-{data['version']}-{tag}",
        version=parse_major_minor(data["version"]),
        machine=machine,
        wheels=(own, *(Wheel(**each) for each in data["needs"])),
    )


def _python_tag() -> str:
    """Return how the names of wheels call this interpreter, such as ``cp312`` or ``cp314t``."""
    free_threaded = "t" if "free-threading" in sys.version else ""
    return f"cp{sys.version_info.major}{sys.version_info.minor}{free_threaded}"


@cache
def _read() -> dict[str, Any]:
    place = files("kernel_builder") / "toolchain" / "tvm-ffi-wheels.toml"
    return tomllib.loads(place.read_text("utf-8"))
