"""How many compilers may run at once: what the CPUs and the memory of this machine or container allow."""

from __future__ import annotations

import os
import re
from pathlib import Path

# The peak memory of one compiler in bytes, measured with g++ 12, nvcc 13.0 and torch 2.13 and
# rounded up: a file that includes torch's full headers, and one that includes the stable ones alone.
PEAK_FULL = 1_500_000_000
PEAK_STABLE = 400_000_000
PEAK_NVCC_FULL = 2_800_000_000
PEAK_NVCC_STABLE = 500_000_000


def choose_jobs(peak: int, *, root: Path = Path("/")) -> int:
    """Choose how many compilers run at once; at least one.

    Args:
        peak: the memory that one needs, in bytes.
        root: where ``proc`` and ``sys`` are.
    """
    memory = available_memory(root)
    fit = count_cpus(root) if memory is None else min(count_cpus(root), memory // peak)
    return max(1, fit)


def count_cpus(root: Path = Path("/")) -> int:
    """Count the CPUs that this process may use, a container's quota (cgroup v2) included."""
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = re.match(r"(\d+) (\d+)", _read(root / "sys/fs/cgroup/cpu.max"))
    if quota is None or int(quota[2]) == 0:
        return cpus
    return max(1, min(cpus, int(quota[1]) // int(quota[2])))


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the memory that can still be used in bytes, or None where nothing tells."""
    found = []
    free = re.search(r"^MemAvailable:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    if free is not None:
        found.append(int(free[1]) * 1024)
    group = root / "sys/fs/cgroup"
    limit, used = _read(group / "memory.max").strip(), _read(group / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        # The kernel gives back what only caches files.
        cached = re.search(r"^inactive_file (\d+)", _read(group / "memory.stat"), re.MULTILINE)
        found.append(int(limit) - int(used) + (int(cached[1]) if cached else 0))
    return max(0, min(found)) if found else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
