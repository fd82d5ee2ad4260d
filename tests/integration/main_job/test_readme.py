"""The README's second listing, run as it is printed but for pip, the place of the hub and the backends.

Budget: 60 s.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def listing() -> list[str]:
    text = (ROOT / "README.md").read_text("utf-8").partition("## Your own kernel")[2]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block[1].splitlines()


def test_from_an_empty_folder_to_a_kernel_that_is_loaded(tmp_path):
    if shutil.which("g++") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("needs g++")
    install, *lines = listing()
    assert install.startswith("pip install torch==")
    # CUDA's compiler would be fetched; the groups of CUDA builds do that.
    script = "\n".join(lines).replace("--backends cpu cuda", "--backends cpu")
    assert script.count("file:///srv/kernels") == 2
    script = script.replace("/srv/kernels", str(tmp_path / "hub"))
    binaries = Path(sys.executable).parent
    done = subprocess.run(
        ["sh", "-ec", script],
        cwd=tmp_path,
        env={"PATH": f"{binaries}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "hub/me/fresh/refs/heads/v1").is_file()
    assert "published me/fresh v1 at" in done.stdout
