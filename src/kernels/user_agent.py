"""The ``User-Agent`` header: which client asks, and, unless told otherwise, from what kind of machine."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping

from kernel_spec.system import System
from kernels._version import __version__

# RFC 9110: a field value is visible ASCII with single blanks; anything else would be refused.
_ILLEGAL = re.compile(r"[^\x21-\x7e]+")


def format_user_agent(
    caller: str | Mapping[str, str] | None, system: System | None, *, telemetry: bool
) -> str:
    """Write the header's value; with ``telemetry`` off it names this client and nothing else.

    Args:
        caller: what the calling library adds: ``{"diffusers": "0.42"}`` or a text.
        system: the machine, or None where it was not looked at.
        telemetry: whether the caller and the machine may be described.
    """
    ours = f"kernels/{__version__}"
    if not telemetry:
        return ours
    parts = [*_caller_parts(caller), ours, f"python/{platform.python_version()}"]
    hub = sys.modules.get("huggingface_hub")
    if hub is not None:
        parts.append(f"hf_hub/{hub.__version__}")
    if system is not None:
        if system.torch is not None:
            parts.append(f"torch/{system.torch.version}")
        if system.tvm_ffi is not None:
            parts.append(f"tvm-ffi/{system.tvm_ffi}")
        if system.glibc is not None:
            parts.append(f"glibc/{system.glibc}")
        parts += [f"backend/{system.backend.kind}", f"platform/{system.cpu}-{system.os}"]
    parts.append("file_type/kernel")
    return "; ".join(filter(None, (_ILLEGAL.sub(" ", part).strip() for part in parts)))


def _caller_parts(caller: str | Mapping[str, str] | None) -> list[str]:
    match caller:
        case None:
            return []
        case str():
            return [caller]
        case _:
            return [f"{key}/{value}" for key, value in caller.items()]
