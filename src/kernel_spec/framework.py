"""Frameworks: the binary interface that a variant was built against."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import assert_never

from kernel_spec.errors import VariantNameError
from kernel_spec.version import MajorMinor


@dataclass(frozen=True, slots=True)
class Torch:
    """Torch's full C++ interface, which fits exactly one torch minor version.

    Attributes:
        version: torch's major and minor version.
        cxx11: the C++ string layout that the name states (``-cxx11``, ``-cxx98``), or None.
    """

    version: MajorMinor
    cxx11: bool | None = None


@dataclass(frozen=True, slots=True)
class TorchStableAbi:
    """Torch's stable C interface, which fits this torch and every later one."""

    version: MajorMinor


@dataclass(frozen=True, slots=True)
class TvmFfi:
    """TVM FFI's interface, which fits exactly one minor version."""

    version: MajorMinor


Framework = Torch | TorchStableAbi | TvmFfi

_TOKEN = re.compile(
    r"(torch|torch-stable-abi|tvm-ffi)([0-9])(0|[1-9][0-9]*)(?:-(cxx11|cxx98))?", re.ASCII
)


def parse_framework(token: str) -> Framework:
    """Read ``torch213``, ``torch213-cxx11``, ``torch-stable-abi211`` or ``tvm-ffi01``.

    The first digit is the major version and the rest the minor one.

    Raises:
        VariantNameError: ``bad-framework``.
    """
    match = _TOKEN.fullmatch(token)
    if match is None or (match[4] is not None and match[1] != "torch"):
        raise VariantNameError(
            "expected a framework such as torch213-cxx11, torch-stable-abi211 or tvm-ffi01, "
            f"found {token!r}",
            kind="bad-framework",
        )
    version = MajorMinor(int(match[2]), int(match[3]))
    match match[1]:
        case "torch":
            return Torch(version, None if match[4] is None else match[4] == "cxx11")
        case "torch-stable-abi":
            return TorchStableAbi(version)
        case _:
            return TvmFfi(version)


def format_requirement(framework: Framework) -> str:
    """Write what pip must install for a variant of this framework: the distribution and its versions."""
    match framework:
        case Torch(version=version):
            return f"torch=={version}.*"
        case TorchStableAbi(version=version):
            return f"torch>={version}"
        case TvmFfi(version=version):
            return f"apache-tvm-ffi=={version}.*"
        case _:
            assert_never(framework)


def format_framework(framework: Framework) -> str:
    """Write a framework as variant names spell it.

    Raises:
        VariantNameError: the major version has more than one digit and so no name.
    """
    version = framework.version
    if version.major > 9:
        raise VariantNameError(
            f"version {version} has no name: the major version has more than one digit",
            kind="bad-framework",
        )
    digits = f"{version.major}{version.minor}"
    match framework:
        case Torch(cxx11=None):
            return f"torch{digits}"
        case Torch(cxx11=cxx11):
            return f"torch{digits}-{'cxx11' if cxx11 else 'cxx98'}"
        case TorchStableAbi():
            return f"torch-stable-abi{digits}"
        case TvmFfi():
            return f"tvm-ffi{digits}"
        case _:
            assert_never(framework)
