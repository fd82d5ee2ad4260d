"""An export that is killed at any moment is finished by the next one, and cleaned without a trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder.export.clean import plan_removal, remove_export
from kernel_builder.export.write import export_project

# Ends itself at the given step of putting files into their places.
KILLED = """
import os, signal, sys
from pathlib import Path
steps, real = iter(range(1, 100)), Path.replace
def replace(self, target):
    if next(steps) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, target)
Path.replace = replace
from kernel_builder.export.write import export_project
export_project(Path(sys.argv[1]), unique="other")
"""


@pytest.mark.parametrize("step", [1, 4, 10, 11])
@pytest.mark.parametrize("first", [True, False])
def test_nothing_is_lost_or_left(copy_kit: Callable[[str], Path], step: int, first: bool) -> None:
    project = copy_kit("add_device")
    before = sorted(project.rglob("*"))
    if not first:
        export_project(project)
    killed = subprocess.run([sys.executable, "-c", KILLED, project, str(step)], check=False)
    assert killed.returncode == -9
    export_project(project, unique="other")
    remove_export(plan_removal(project))
    assert sorted(project.rglob("*")) == before
