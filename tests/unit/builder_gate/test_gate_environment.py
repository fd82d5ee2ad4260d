"""What the gate's process finds in its environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kernel_builder.gate.story import _variables
from kernel_builder.settings import read_settings

# As in a sandbox that hides the list of users, where torch's compiler asks getpass for a name.
ASK = """
import getpass, pwd
def hidden(uid): raise KeyError(f"uid not found: {uid}")
pwd.getpwuid = hidden
print(getpass.getuser())
"""


def test_it_has_a_name_without_a_list_of_users(tmp_path: Path) -> None:
    variables = _variables(read_settings({"PATH": "/usr/bin:/bin"}), tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-c", ASK],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "gate\n", done.stderr
