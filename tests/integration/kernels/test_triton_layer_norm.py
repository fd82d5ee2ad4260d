"""triton-layer-norm, built for every backend on a machine without a GPU, and used as a user does.

Budget: three minutes on two cores; the CUDA variant is compiled for one architecture.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lacking import give_up
from torch import nn

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.settings import read_settings
from kernel_builder.toolchain.cuda import get_cuda

NAME = "kernels-community/triton-layer-norm"
PROJECT = Path(__file__).parents[3] / NAME
BUILDER = Path(sys.executable).parent / "kernel-builder"


def run(*command: object, **environment: str) -> None:
    result = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("norms") / "triton-layer-norm"
    shutil.copytree(PROJECT, target, ignore=shutil.ignore_patterns("build"))
    run(BUILDER, "build", target, "--arch", "9.0")
    return target


@pytest.fixture(scope="module")
def compiled(project: Path) -> Path:
    try:
        get_cuda(read_settings(os.environ))
    except ToolchainUnavailableError as err:
        give_up(err)
    [variant] = (project / "build").glob("torch-stable-abi210-cu130-*")
    return variant


def test_every_backend_gets_a_variant_without_its_compiler(project: Path) -> None:
    variants = {path.name for path in (project / "build").iterdir()}
    assert variants >= {"torch-cpu", "torch-cuda", "torch-rocm"}


def test_the_compiled_variant_carries_the_python_of_the_others(
    project: Path, compiled: Path
) -> None:
    metadata = json.loads((compiled / "metadata.json").read_text())
    assert metadata["backend"]["archs"] == ["9.0"]
    [library] = compiled.glob("*.abi3.so")
    assert library.name.startswith(metadata["id"])
    parts = {path.name.removeprefix(metadata["id"]) for path in compiled.glob("*.torch*.so")}
    assert parts >= {".torch210.so", ".torch211.so", ".torch213.so"}
    pure = project / "build" / "torch-cuda"
    for file in pure.glob("*.py"):
        if file.name != "_ops.py":
            assert (compiled / file.name).read_bytes() == file.read_bytes()


def test_it_passes_its_own_tests(project: Path) -> None:
    run(
        *(sys.executable, "-m", "pytest", "-q", "--import-mode=importlib"),
        *("-p", "no:cacheprovider", project / "tests"),
        CI="true",
        LOCAL_KERNELS=f"{NAME}={project}",
    )


def test_it_passes_the_gate(project: Path) -> None:
    run(BUILDER, "check", project, "--gate")


def test_a_model_with_its_layer_is_the_model_without(project: Path) -> None:
    from kernels import get_local_kernel

    layers = get_local_kernel(project, backend="cpu").layers

    class RMSNorm(nn.Module):
        def __init__(self, hidden: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(hidden))
            self.eps = 1e-5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            variance = x.float().pow(2).mean(-1, keepdim=True)
            return (self.weight * (x * torch.rsqrt(variance + self.eps))).to(x.dtype)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), RMSNorm(256), nn.GELU(), nn.Linear(256, 10)).half()
    x = torch.randn(32, 64).half()
    expected = model(x)
    norm = model[1]
    norm.forward = layers.LlamaRMSNorm.forward.__get__(norm)
    torch.testing.assert_close(model(x), expected, rtol=1e-2, atol=1e-2)
