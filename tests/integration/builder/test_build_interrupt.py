"""An interrupted build ends its compilers and leaves nothing in the project."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

KERNEL = Path(__file__).parents[3] / "kernels-community" / "activation"


def running_below(folder: Path) -> list[int]:
    """Return the processes, zombies aside, that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").resolve().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_build_that_is_told_to_end_ends_its_compilers(tmp_path, number, code, sandbox):
    project, cache = tmp_path / "activation", tmp_path / "cache"
    shutil.copytree(KERNEL, project, ignore=shutil.ignore_patterns("build"))
    build = subprocess.Popen(
        [Path(sys.executable).with_name("kernel-builder"), "build", project],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "KERNEL_BUILDER_SANDBOX": sandbox},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    started = 0
    while started < 3 and build.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
        started = len(running_below(cache))
    assert started >= 3, "the compilers never started"
    build.send_signal(number)
    assert build.wait(10) == code
    deadline = time.monotonic() + 3
    while running_below(cache) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running_below(cache) == []
    assert not list(project.glob("build/*"))
