"""What the loading machine offers: the value that variants are matched against."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_spec.backend import Backend
from kernel_spec.version import MajorMinor, is_release, parse_major_minor


@dataclass(frozen=True, slots=True)
class TorchBuild:
    """An installed torch.

    Attributes:
        version: the full version text, such as ``2.13.0+cpu``.
        release: its major and minor version.
        prerelease: no release but what comes before one, whose full C++ interface equals none.
        cxx11_abi: whether it was compiled with the C++11 string layout.
    """

    version: str
    release: MajorMinor
    prerelease: bool = False
    cxx11_abi: bool = True


def parse_torch_build(version: str, *, cxx11_abi: bool = True) -> TorchBuild:
    """Read what the version text of an installed torch says.

    Args:
        version: such as ``2.13.0+cpu``.
        cxx11_abi: whether it was compiled with the C++11 string layout.

    Raises:
        ValueError: the text does not begin with two numbers joined by a dot.
    """
    return TorchBuild(
        version=version,
        release=parse_major_minor(version),
        prerelease=not is_release(version),
        cxx11_abi=cxx11_abi,
    )


@dataclass(frozen=True, slots=True)
class Device:
    """A visible accelerator.

    Attributes:
        arch: the CUDA capability (``9.0``) or the ROCm name (``gfx942``).
        name: what the driver calls it.
        index: its number among the visible ones.
    """

    arch: str
    name: str = ""
    index: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """A machine with its Python, as far as kernels care.

    Attributes:
        torch: the installed torch, or None.
        tvm_ffi: the installed TVM FFI's major and minor version, or None.
        backend: what kernels run on here.
        cpu: ``x86_64`` or ``aarch64`` or what the machine says.
        os: ``linux``, ``darwin`` or ``windows``.
        macos: the version of macOS, or None elsewhere.
        python: the interpreter's major and minor version.
        free_threaded: whether the interpreter runs without the global lock.
        glibc: the version of the C library, or None where there is none.
        devices: every visible accelerator.
    """

    torch: TorchBuild | None
    backend: Backend
    cpu: str
    os: str
    python: MajorMinor
    tvm_ffi: MajorMinor | None = None
    macos: MajorMinor | None = None
    free_threaded: bool = False
    glibc: MajorMinor | None = None
    devices: tuple[Device, ...] = ()
