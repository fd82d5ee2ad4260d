"""What this machine offers: reads Python, torch and the devices into a ``System``.

Where torch is not imported yet, its version module is read as text: importing torch costs more
than a second, and listing variants does not need it.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from kernel_spec.backend import Backend, BackendKind
from kernel_spec.system import Device, System, TorchBuild, parse_torch_build
from kernel_spec.version import MajorMinor, parse_major_minor

_CPU_NAMES = {"arm64": "aarch64", "amd64": "x86_64", "x64": "x86_64"}
_OS_NAMES = {"linux": "linux", "darwin": "darwin", "win32": "windows"}
# Packages that add a backend to torch when it is imported; the text of torch does not tell.
_BACKEND_PACKAGES = ("torch_npu", "torch_neuronx", "torch_tpu")
_ASSIGNMENT = re.compile(
    r"^(__version__|cuda|hip|xpu)\s*(?::[^=\n]+)?=\s*(?:'([^']*)'|\"([^\"]*)\"|None)", re.MULTILINE
)
# The runtimes that CUDA variants are built for, newest first.
_CUDARTS = ("libcudart.so.13", "libcudart.so.12")
# Earlier ones were built with either C++ string layout; only torch itself can say which.
_ALWAYS_CXX11 = MajorMinor(2, 7)


def detect() -> System:
    """Describe this machine, without its devices; imports torch only where its text cannot tell."""
    torch, backend = _detect_torch()
    tvm_ffi = _detect_tvm_ffi()
    if torch is None and tvm_ffi is not None:
        backend = _detect_cudart() or backend
    return System(
        torch=torch,
        backend=backend,
        cpu=_detect_cpu(),
        os=_OS_NAMES.get(sys.platform, sys.platform),
        python=MajorMinor(*sys.version_info[:2]),
        tvm_ffi=tvm_ffi,
        macos=_detect_macos(),
        free_threaded="free-threading" in sys.version,
        glibc=_detect_glibc(),
    )


def detect_devices(system: System) -> System:
    """Return the system with every visible accelerator; imports torch."""
    if system.torch is None or system.backend.kind not in {BackendKind.CUDA, BackendKind.ROCM}:
        return system
    import torch

    devices = []
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        arch = (
            str(facts.gcnArchName)
            if system.backend.kind is BackendKind.ROCM
            else f"{facts.major}.{facts.minor}"
        )
        devices.append(Device(arch=arch, name=str(facts.name), index=index))
    return replace(system, devices=tuple(devices))


def describe(system: System) -> str:
    """Say in one line what variants are matched against."""
    torch = f"torch {system.torch.version}" if system.torch else "no torch"
    torch += f", tvm-ffi {system.tvm_ffi}" if system.tvm_ffi else ""
    return f"{torch}, {system.backend}, {system.cpu} {system.os}, Python {system.python}"


def _detect_torch() -> tuple[TorchBuild | None, Backend]:
    module = sys.modules.get("torch")
    if module is None or _is_being_imported(module):
        spec = find_spec("torch")
        if spec is None or spec.origin is None:
            return None, Backend(BackendKind.CPU)
        facts = read_version_text(Path(spec.origin).with_name("version.py"))
        if facts is not None and not _needs_import(facts):
            build = parse_torch_build(facts["__version__"] or "", cxx11_abi=True)
            return build, _backend_of(facts["cuda"], facts["hip"], facts["xpu"])
        import torch

        module = torch
    cxx11_abi = bool(module.compiled_with_cxx11_abi())
    build = parse_torch_build(str(module.__version__), cxx11_abi=cxx11_abi)
    return build, _backend_of_module(module)


def read_version_text(path: Path) -> dict[str, str | None] | None:
    """Read ``__version__``, ``cuda``, ``hip`` and ``xpu`` of torch's ``version.py``.

    Returns:
        The four values, or None where the file is not there or not of the usual form.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    found = {match[1]: match[2] or match[3] for match in _ASSIGNMENT.finditer(text)}
    if not found.get("__version__") or "cuda" not in found:
        return None
    return {name: found.get(name) for name in ("__version__", "cuda", "hip", "xpu")}


def _is_being_imported(module: ModuleType) -> bool:
    """Say whether a thread is about to make a module, which has only some of its names until then."""
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _needs_import(facts: dict[str, str | None]) -> bool:
    if sys.platform == "darwin" or any(map(find_spec, _BACKEND_PACKAGES)):
        return True
    return parse_major_minor(facts["__version__"] or "0.0") < _ALWAYS_CXX11


def _backend_of(cuda: str | None, hip: str | None, xpu: str | None) -> Backend:
    if cuda:
        return Backend(BackendKind.CUDA, parse_major_minor(cuda))
    if hip:
        return Backend(BackendKind.ROCM, parse_major_minor(hip))
    if xpu:
        return Backend(BackendKind.XPU, _xpu_version(xpu))
    return Backend(BackendKind.CPU)


def _backend_of_module(torch: ModuleType) -> Backend:
    version = torch.version
    if hasattr(torch.backends, "tpu"):
        return Backend(BackendKind.TPU)
    if hasattr(torch, "neuron"):
        return Backend(BackendKind.NEURON)
    if version.cuda or version.hip:
        return _backend_of(version.cuda, version.hip, None)
    if torch.backends.mps.is_available():
        return Backend(BackendKind.METAL)
    xpu = getattr(version, "xpu", None)
    if not xpu and torch._C._get_privateuse1_backend_name() == "npu":
        return Backend(BackendKind.CANN, _cann_version())
    return _backend_of(None, None, xpu)


def _xpu_version(text: str) -> MajorMinor:
    # torch writes the compiler's version as one number, 20250300 for 2025.3.
    if text.isdigit() and len(text) == 8:
        return MajorMinor(int(text[:4]), int(text[4:6]))
    return parse_major_minor(text)


def _cann_version() -> MajorMinor | None:
    import importlib

    try:
        torch_npu = importlib.import_module("torch_npu")
        return parse_major_minor(str(torch_npu.version.cann))
    except (ImportError, AttributeError, ValueError):
        return None


def _detect_tvm_ffi() -> MajorMinor | None:
    module = sys.modules.get("tvm_ffi")
    if module is None:
        if find_spec("tvm_ffi") is None:
            return None
        from importlib.metadata import PackageNotFoundError, version

        try:
            return parse_major_minor(version("apache-tvm-ffi"))
        except (PackageNotFoundError, ValueError):
            return None
    try:
        return parse_major_minor(str(module.__version__))
    except (AttributeError, ValueError):
        return None


def _detect_cudart() -> Backend | None:
    """Return the CUDA of the runtime library that a kernel without torch would be linked with.

    Nothing is initialised, so that processes may still be forked; without a driver there is no GPU.
    """
    import ctypes

    for name in _CUDARTS:
        try:
            ctypes.CDLL("libcuda.so.1")
            library = ctypes.CDLL(name)
        except OSError:
            continue
        version = ctypes.c_int()
        if library.cudaRuntimeGetVersion(ctypes.byref(version)) == 0:
            major, rest = divmod(version.value, 1000)
            return Backend(BackendKind.CUDA, MajorMinor(major, rest // 10))
    return None


def _detect_cpu() -> str:
    machine = _platform().machine() if os.name == "nt" else os.uname().machine
    return _CPU_NAMES.get(machine.lower(), machine)


def _detect_macos() -> MajorMinor | None:
    text = _platform().mac_ver()[0] if _OS_NAMES.get(sys.platform) == "darwin" else ""
    return parse_major_minor(text if "." in text else f"{text}.0") if text else None


def _detect_glibc() -> MajorMinor | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        return None
    return parse_major_minor(text.split()[-1]) if text else None


def _platform() -> ModuleType:
    import platform

    return platform
