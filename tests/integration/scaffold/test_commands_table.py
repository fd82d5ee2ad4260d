"""Every row of docs/guide/commands.md works as it stands, from top to bottom.

The budget: four minutes on two cores, of which torch for the devshell is half.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from lacking import require_commands

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "commands.md"
ROWS = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
PROGRAMS = {"kernel-builder": "main", "build2cmake": "build2cmake"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_commands("g++")
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("row", ROWS)
def test_row(place: Path, row: str) -> None:
    program, *arguments = shlex.split(row.replace("$PWD", str(place)))
    code = f"from kernel_builder.cli import {PROGRAMS[program]} as main; main()"
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("KERNELS_", "LOCAL_", "KERNEL_BUILDER_"))
    }
    env |= {"XDG_CACHE_HOME": str(place / "cache"), "KERNELS_CACHE": str(place / "kernels")}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=place,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() or "-c" in arguments
