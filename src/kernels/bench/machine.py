"""What figures are measured on: the device, and the versions of what runs on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def describe_machine(device: Any) -> dict[str, str]:
    """Say what figures are measured on, by texts: the device, versions, and the threads of a CPU.

    Args:
        device: a ``torch.device``.
    """
    import torch

    found = {
        "device": _processor(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
        "system": platform.platform(),
    }
    if device.type == "cpu":
        return found
    api = torch.get_device_module(device)
    found["device"] = str(api.get_device_name(device))
    del found["threads"]
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    try:
        import triton
    except ImportError:
        return found
    return found | {"triton": triton.__version__}


def find_load() -> tuple[float, int]:
    """Return how many programs wanted a processor in the last minute, and how many processors there are."""
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on every system, nor in every sandbox
        load = 0.0
    return load, os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
