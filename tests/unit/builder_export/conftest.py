"""Projects of every kind to export, each in a directory of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

KITS = Path(__file__).parents[2] / "kits"


@pytest.fixture
def copy_kit(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        leave_out = shutil.ignore_patterns("__pycache__", "build")
        return Path(shutil.copytree(KITS / name, tmp_path / name, ignore=leave_out))

    return copy


@pytest.fixture
def project(copy_kit: Callable[[str], Path]) -> Path:
    """A project with a CPU and a CUDA component."""
    return copy_kit("add_device")
