"""What to do about a kernel of which no variant fits: the nearest one, its cause, and one command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kernel_spec.backend import Backend, BackendKind, format_backend
from kernel_spec.compat import Accepted, Decision, Rejected, fits_device
from kernel_spec.errors import VariantNameError
from kernel_spec.framework import format_requirement
from kernel_spec.system import System
from kernel_spec.variant import ArchVariant

# How hard it is for a user to change what a reason speaks of: the nearest variant costs least.
_COSTS = {
    "not-cached": 1,
    "client": 1,
    "framework-version": 2,
    "torch-symbols": 2,
    "tvm-ffi-symbols": 2,
    "backend-version": 3,
    "library": 3,
    "abi": 3,
    "python": 3,
    "free-threaded": 3,
    "libstdc++": 4,
    "executable-stack": 4,
    "arch": 5,
    "glibc": 5,
    "backend": 6,
    "metadata": 7,
    "damaged": 7,
    "unknown-form": 8,
}
_OTHER_MACHINE = 9
_BUILT_FOR = re.compile(r"built for ([^,]+(?:, [^,]+)*), not for|hold code for (.+), not for")


class Advice(NamedTuple):
    """Why a kernel does not load, and what to do.

    Attributes:
        variant: the variant that is nearest to fitting; empty where there is none.
        cause: one sentence.
        command: one command or line of code.
    """

    variant: str
    cause: str
    command: str


def advise(repo_id: str, decisions: Sequence[Decision], system: System) -> Advice:
    """Choose the variant that is nearest to fitting and say what would make it fit."""
    rejected = [d for d in decisions if isinstance(d, Rejected)]
    if not rejected:
        return Advice("", f"{repo_id} holds no build variants", f"kernels versions {repo_id}")
    build = f"get_kernel({repo_id!r}, build_from_source='missing')"
    fixes = {d.name: _find_fix(repo_id, d, system) for d in rejected}
    nearest = min(rejected, key=lambda d: (_cost(d), fixes[d.name] is None, d.name))
    return Advice(nearest.name, nearest.reason, fixes[nearest.name] or build)


def _cost(decision: Rejected) -> int:
    return sum(_COSTS.get(reason.kind, _OTHER_MACHINE) for reason in decision.reasons)


def _find_fix(repo_id: str, rejected: Rejected, system: System) -> str | None:
    """Return what changes the hardest reason of a variant; None where another must be built."""
    fixed = {
        "client": "pip install --upgrade kernels",
        "unknown-form": "pip install --upgrade kernels",
        "not-cached": "kernels bundle install FILE",
        "torch-symbols": "pip install --upgrade torch",
        "tvm-ffi-symbols": "pip install --upgrade apache-tvm-ffi",
        "free-threaded": f"python{system.python}",
        "metadata": f"kernels check {repo_id}",
        "damaged": f"kernels check {repo_id}",
    }
    kinds = [reason.kind for reason in rejected.reasons]
    match max(kinds, key=lambda kind: _COSTS.get(kind, _OTHER_MACHINE)):
        case "framework-version":
            return _install_framework(rejected)
        case "backend" | "backend-version":
            return _install_backend(rejected, system)
        case "arch":
            return _hide_devices(rejected, system)
        case kind:
            return fixed.get(kind)


def _install_framework(rejected: Rejected) -> str | None:
    if not isinstance(rejected.variant, ArchVariant):
        return None
    return f"pip install '{format_requirement(rejected.variant.framework)}'"


def _install_backend(rejected: Rejected, system: System) -> str | None:
    """Name the build of this torch for another backend; its local version is how indexes call it."""
    if not isinstance(rejected.variant, ArchVariant) or system.torch is None:
        return None
    built: Backend = rejected.variant.backend
    if built.kind not in {BackendKind.CPU, BackendKind.CUDA}:
        return None
    try:
        token = format_backend(built)
    except VariantNameError:
        return None
    return f"pip install 'torch=={system.torch.version.partition('+')[0]}+{token}'"


def _hide_devices(rejected: Rejected, system: System) -> str | None:
    """Leave only the devices visible that the code runs on, where there are any."""
    match = _BUILT_FOR.search(rejected.reason)
    if match is None:
        return None
    archs = (match[1] or match[2]).split(", ")
    fitting = [
        str(device.index)
        for device in system.devices
        if fits_device(system.backend.kind, archs, device.arch)
    ]
    name = "HIP" if system.backend.kind is BackendKind.ROCM else "CUDA"
    return f"export {name}_VISIBLE_DEVICES={','.join(fitting)}" if fitting else None


def find_chosen(decisions: Sequence[Decision]) -> Accepted | None:
    """Return the variant that a load takes: the first that fits."""
    return next((d for d in decisions if isinstance(d, Accepted)), None)
