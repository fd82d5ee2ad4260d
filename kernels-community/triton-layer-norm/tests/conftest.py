"""Load the kernel as a user does, by its hub name, from the variants that were built here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

REPO_ID = "kernels-community/triton-layer-norm"
PROJECT = Path(__file__).resolve().parents[1]

# Kept for subprocesses, and beside whatever other kernels the variable already names.
_named = os.environ.get("LOCAL_KERNELS", "")
if f"{REPO_ID}=" not in _named:
    os.environ["LOCAL_KERNELS"] = ":".join(filter(None, (_named, f"{REPO_ID}={PROJECT}")))


@pytest.fixture(scope="session")
def norms() -> ModuleType:
    if not (PROJECT / "build").is_dir():
        message = f"not built: run `kernel-builder build {PROJECT}` first"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from kernels import get_kernel

    return get_kernel(REPO_ID)


@pytest.fixture(autouse=True, params=["kernel", "torch"] if torch.cuda.is_available() else ["any"])
def few_recorded(
    request: pytest.FixtureRequest, norms: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let short calls that autograd records run in our kernels too, not in torch's alone."""
    if request.param == "kernel":
        functions = sys.modules[f"{norms.__name__}.functions"]
        monkeypatch.setattr(functions, "_FEW_RECORDED", 0)


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param
