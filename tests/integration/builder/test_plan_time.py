"""``plan`` and ``list-variants`` answer at once: nothing is fetched, no compiler is started."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[3] / "kernels-community" / "activation"
SECONDS = 0.3


@pytest.mark.parametrize("arguments", [["plan"], ["list-variants", "--all"]])
def test_a_plan_takes_less_than_a_third_of_a_second(arguments: list[str], tmp_path: Path) -> None:
    """CPU seconds of a new process, since the clock shows what else the machine does."""
    command = [str(Path(sys.executable).parent / "kernel-builder"), *arguments, str(PROJECT)]
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert "cpu-x86_64" in done.stdout or "cpu-aarch64" in done.stdout
    assert min(taken) < SECONDS, taken
    assert not (tmp_path / "cache").exists()
