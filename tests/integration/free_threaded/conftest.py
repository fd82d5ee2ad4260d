"""A free-threaded CPython with what the loader needs, and nothing of this interpreter.

Time budget of this folder: 4 minutes on two cores, of which the first run on a machine spends 2 to build it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import free_threaded
import peers
import pytest
from lacking import give_up

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def free_python(tmp_path_factory):
    """Return the interpreter of an environment: the loader's dependencies and pytest, no torch."""
    try:
        base = free_threaded.find_or_build()
    except peers.PeerUnavailableError as err:
        give_up(err)
    folder = tmp_path_factory.mktemp("free") / "venv"
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    packages = ("huggingface_hub", "packaging", "filelock", "click", "pyelftools", "pytest")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-input"]
    done = subprocess.run(
        [*pip, "-c", ROOT / "ci" / "constraints.txt", *packages],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return python
