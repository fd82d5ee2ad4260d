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


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
if wanted := os.environ.get("KERNELS_TEST_DEVICES"):
    DEVICES = [device for device in DEVICES if device in wanted.split(",")]
# On a GPU: the compiled ops, recorded by the node in C++ and in Python, Triton's kernels without them, and
# what is chosen for the tensors, torch's own functions among it.
WAYS = ["node", "compiled", "triton", "chosen"] if "cuda" in DEVICES else ["chosen"]


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, norms: ModuleType, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let every call go one way, short ones that autograd records too."""
    way: str = request.param
    compiled = sys.modules[f"{norms.__name__}._compiled"]
    if way in {"node", "compiled"} and not compiled.is_here:
        pytest.skip("the variant that fits here has no compiled ops")
    if way == "node" and not compiled.has_node:
        pytest.skip(f"the variant has no library for torch {torch.__version__}")
    if way == "triton":
        monkeypatch.setattr(compiled, "is_here", False)
    if way in {"compiled", "triton"}:
        monkeypatch.setattr(compiled, "has_node", False)
        monkeypatch.setattr(compiled, "record_norm", compiled.in_python[0])
        monkeypatch.setattr(compiled, "record_add_norm", compiled.in_python[1])
    if way in {"node", "compiled"}:
        monkeypatch.setattr(
            compiled,
            "is_better",
            lambda x, weight, bias, _, is_recorded: compiled.fits(
                x, None, weight, bias, is_recorded
            ),
        )
    if way != "chosen":
        functions = sys.modules[f"{norms.__name__}.functions"]
        monkeypatch.setattr(functions, "_FEW_RECORDED", 0)
    return way


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param
