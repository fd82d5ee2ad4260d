"""Load the kernel as a user does, by its hub name, from the variants that were built here."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

REPO_ID = "kernels-community/img2gray"
PROJECT = Path(__file__).resolve().parents[1]

# Kept for subprocesses, and beside whatever other kernels the variable already names.
_named = os.environ.get("LOCAL_KERNELS", "")
if f"{REPO_ID}=" not in _named:
    os.environ["LOCAL_KERNELS"] = ":".join(filter(None, (_named, f"{REPO_ID}={PROJECT}")))


@pytest.fixture(scope="session")
def img2gray() -> ModuleType:
    if not (PROJECT / "build").is_dir():
        message = f"not built: run `kernel-builder build {PROJECT}` first"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from kernels import get_kernel

    return get_kernel(REPO_ID)
