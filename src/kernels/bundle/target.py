"""The systems that a bundle is made for, as users name them: ``torch2.13-cu130-x86_64-linux``."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import assert_never

from kernel_spec.errors import UsageError, VariantNameError
from kernel_spec.framework import Torch, TorchStableAbi, TvmFfi
from kernel_spec.system import Device, System, TorchBuild
from kernel_spec.variant import ArchVariant, parse_variant
from kernel_spec.version import MajorMinor

_DOTTED = re.compile(r"^(torch|tvm-ffi)(\d)\.(\d+)(?=-)", re.ASCII)


def parse_target(text: str, archs: Sequence[str] = ()) -> System:
    """Read the name of a system; it is written like a variant, and its version may have a dot.

    Args:
        text: ``torch2.13-cu130-x86_64-linux`` or ``torch213-cpu-aarch64-linux``.
        archs: what its devices are, such as ``9.0`` or ``gfx942``; where there are none, code
            for any device will do.

    Raises:
        UsageError: it is not the name of a system.
    """
    try:
        variant = parse_variant(_DOTTED.sub(r"\1\2\3", text))
    except VariantNameError as err:
        raise _wrong(text, str(err)) from None
    if not isinstance(variant, ArchVariant):
        raise _wrong(text, "it names no torch, no CPU and no operating system")
    torch, tvm_ffi = None, None
    match variant.framework:
        case Torch(version=version, cxx11=cxx11):
            torch = TorchBuild(str(version), version, cxx11_abi=cxx11 is not False)
        case TvmFfi(version=version):
            tvm_ffi = version
        case TorchStableAbi():
            raise _wrong(text, "a system has a torch, not its stable ABI")
        case _:
            assert_never(variant.framework)
    return System(
        torch=torch,
        tvm_ffi=tvm_ffi,
        backend=variant.backend,
        cpu=variant.cpu,
        os=variant.os,
        python=MajorMinor(*sys.version_info[:2]),
        macos=MajorMinor(26, 0) if variant.os == "darwin" else None,
        devices=tuple(Device(arch, index=index) for index, arch in enumerate(archs)),
    )


def _wrong(text: str, why: str) -> UsageError:
    return UsageError(
        f"--target {text!r}: {why}. Expected the system of the other machine, such as "
        "torch2.13-cu130-x86_64-linux."
    )
