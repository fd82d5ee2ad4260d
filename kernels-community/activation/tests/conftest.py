"""Load the kernel as a user does, by its hub name, from the variants that were built here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

REPO_ID = "kernels-community/activation"
PROJECT = Path(__file__).resolve().parents[1]

# Kept for subprocesses, and beside whatever other kernels the variable already names.
_named = os.environ.get("LOCAL_KERNELS", "")
if f"{REPO_ID}=" not in _named:
    os.environ["LOCAL_KERNELS"] = ":".join(filter(None, (_named, f"{REPO_ID}={PROJECT}")))


# A CUDA variant carries the code for the CPU, too: there every test runs on both.
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
if wanted := os.environ.get("KERNELS_TEST_DEVICES"):
    DEVICES = [device for device in DEVICES if device in wanted.split(",")]


@pytest.fixture(autouse=True, params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the tensors of a test are made."""
    with torch.device(request.param):
        yield request.param


@pytest.fixture(scope="session")
def activation() -> ModuleType:
    if not (PROJECT / "build").is_dir():
        message = f"not built: run `kernel-builder build {PROJECT}` first"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from kernels import get_kernel

    return get_kernel(REPO_ID)
