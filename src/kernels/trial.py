"""Tries a kernel in a process of its own: a crash or an exit there says what was being done, and harms nobody."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

CHILD = "kernels.bench.launch"
SECONDS = 600.0
_TAIL = 6


class Trial(NamedTuple):
    """What came of a trial.

    Attributes:
        steps: what the process did, in order; where it failed, the last one is what it died of.
        fault: how it ended and the last lines that it wrote; None where all went well.
    """

    steps: tuple[str, ...]
    fault: str | None


def try_kernel(kernel: str, revision: str = "", *, seconds: float = SECONDS) -> Trial:
    """Load a kernel and launch it once on every visible device, in a child process.

    The child does not look for modules in the current folder. It has this process's settings, and asks for trust as any load does.

    Args:
        kernel: a repository's id, or the path of a project, with its benchmark files.
        revision: a branch, tag or commit of that repository.
        seconds: how long it may take.
    """
    with tempfile.TemporaryDirectory(prefix="kernels-trial-") as folder:
        place = Path(folder) / "steps"
        place.touch()
        command = [sys.executable, "-P", "-m", CHILD, str(place), kernel, *filter(None, [revision])]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            fault = f"no end after {seconds:.0f} s"
        else:
            fault = _describe_end(done.returncode, done.stdout.decode(errors="replace"))
        steps = tuple(place.read_text(encoding="utf-8").splitlines())
    return Trial(steps, fault or None)


def _describe_end(code: int, said: str) -> str:
    if code == 0:
        return ""
    end = f"exit code {code}"
    if code < 0:
        try:
            end = f"signal {signal.Signals(-code).name}"
        except ValueError:
            end = f"signal {-code}"
    lines = [line for line in said.splitlines() if line.strip()][-_TAIL:]
    return "\n".join([end, *(f"  {line}" for line in lines)])
