"""The CUDA variants of our own kernels, built for one architecture on a machine without a GPU.

The builder loads what it has built (lazily bound) and compares the registered ops with the sources, so
this finds both what does not compile and what is not registered. Budget: two minutes on two cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lacking import give_up

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.settings import read_settings
from kernel_builder.toolchain.cuda import get_cuda

COMMUNITY = Path(__file__).parents[3] / "kernels-community"
BUILDER = Path(sys.executable).parent / "kernel-builder"


@pytest.fixture(scope="module")
def toolchain() -> None:
    try:
        get_cuda(read_settings(os.environ))
    except ToolchainUnavailableError as err:
        give_up(err)


@pytest.mark.usefixtures("toolchain")
@pytest.mark.parametrize("name", ["activation", "img2gray"])
def test_the_cuda_variant_builds_without_a_gpu(name: str, tmp_path: Path) -> None:
    project = tmp_path / name
    shutil.copytree(COMMUNITY / name, project, ignore=shutil.ignore_patterns("build"))
    words = ("build", project, "--backend", "cuda", "--arch", "9.0")
    done = subprocess.run([BUILDER, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [variant] = (project / "build").iterdir()
    assert "cu130" in variant.name
    metadata = json.loads((variant / "metadata.json").read_text())
    [library] = variant.glob("*.abi3.so")
    assert library.name.startswith(metadata["id"])
    assert metadata["backend"]["archs"] == ["9.0"]
