"""What a command and all that it starts use: time, CPU time, and memory at its fullest moment."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Used:
    """What a finished command used.

    Attributes:
        seconds: on the clock.
        cpu_seconds: of all its processes, user and system.
        peak_bytes: the largest sum over its processes that was seen; pages that several share are
            counted once. Seen every 20 ms, so a shorter peak may be missed.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def run_counted(command: list[str], variables: dict[str, str]) -> Used:
    """Run a command to its end; exit with its output if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
        peak = 0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, sum(map(resident_bytes, descendants(process.pid))))
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(command)}\n{output.read()}")
    return Used(seconds, usage.ru_utime + usage.ru_stime, peak)


def descendants(pid: int) -> list[int]:
    """Return a process and what it started, and they, as far as they live."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue  # it has ended
    return found


def resident_bytes(pid: int) -> int:
    """Return a process's share of memory, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
