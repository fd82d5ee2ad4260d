"""The guide about pip, typed in a new project: installed, imported, and removed again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from listings import get_listing


def test_the_commands_of_the_guide(environment, tmp_path):
    """pip and python are those of the environment; kernel-builder is that of this one."""
    install = get_listing(
        "docs/guide/pip-install-a-project.md", "kernel-builder create-pyproject ."
    )
    remove = get_listing("docs/guide/pip-install-a-project.md", "kernel-builder clean-pyproject .")
    path = f"{environment.bin}:{os.environ['PATH']}:{Path(sys.executable).parent}"
    before = "kernel-builder init --name me/fresh --backends cpu && cd fresh"
    done = subprocess.run(
        [
            "sh",
            "-euc",
            f"{before}\n{install}\n{remove}\ngit status --short\npip uninstall -qy fresh",
        ],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path), "MAX_JOBS": "2"}
        | {name: text for name, text in os.environ.items() if name.startswith("PIP_")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    changed = [line for line in done.stdout.splitlines() if line.startswith(("??", " M", "AM"))]
    assert changed == []
    assert not (tmp_path / "fresh/setup.py").exists()
