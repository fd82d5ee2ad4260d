"""The unmodified published kernels 0.17.2 loads what is built."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.pipeline import build_project
from kernel_builder.settings import Settings

_LOAD = """
import importlib.metadata, sys, torch
from pathlib import Path
from kernels import get_local_kernel
assert importlib.metadata.version("kernels") == "0.17.2"
kernel = get_local_kernel(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("name", "code", "expected"),
    [
        ("add_stable", "kernel.add_one(torch.arange(3.0)).tolist()", "[1.0, 2.0, 3.0]"),
        (
            "throw_full",
            "kernel.describe_mismatch(torch.ones(2, 3), torch.ones(2, 3))",
            "caught c10::Error",
        ),
        ("scale_noarch", "kernel.scale(torch.ones(2), 2.0).tolist()", "[2.0, 2.0]"),
    ],
)
def test_a_built_project_loads(
    kit: Callable[[str], Path],
    settings: Settings,
    reference: Any,
    tmp_path: Path,
    *,
    name: str,
    code: str,
    expected: str,
) -> None:
    project = kit(name)
    assert build_project(project, settings=settings).exit_code == 0
    done = subprocess.run(
        [
            reference.folder / "bin" / "python",
            "-c",
            f"{_LOAD}print({code})",
            str(project / "build"),
        ],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected
