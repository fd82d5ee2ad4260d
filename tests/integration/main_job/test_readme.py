"""The README's second listing, run as it is printed but for pip and the backends.

Budget: 60 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lacking import require_commands
from listings import get_listing


def listing() -> list[str]:
    return get_listing("README.md", "pip install torch==2.13.0 numpy").splitlines()


def test_from_an_empty_folder_to_a_kernel_that_is_loaded(tmp_path):
    require_commands("g++")
    install, *lines = listing()
    assert install.startswith("pip install torch==")
    # CUDA's compiler would be fetched; the groups of CUDA builds do that.
    script = "\n".join(lines).replace("--backends cpu cuda", "--backends cpu")
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
    assert (tmp_path / "home/kernels-hub/me/fresh/refs/heads/v1").is_file()
    assert "published me/fresh v1 at" in done.stdout
