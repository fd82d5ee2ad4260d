"""Frameworks: the binary interface that a variant was built against."""

from __future__ import annotations

from dataclasses import dataclass

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


def parse_framework(token: str) -> Framework:
    """Read ``torch213``, ``torch213-cxx11``, ``torch-stable-abi211`` or ``tvm-ffi01``.

    The first digit is the major version and the rest the minor one.

    Raises:
        VariantNameError: ``bad-framework``.
    """
    raise NotImplementedError


def format_framework(framework: Framework) -> str:
    """Write a framework as variant names spell it.

    Raises:
        VariantNameError: the major version has more than one digit and so no name.
    """
    raise NotImplementedError
