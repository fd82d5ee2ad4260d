"""The guide's listing and the example do what the pages say. Budget: see conftest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run_python(hub, tmp_path):
    def run(*words):
        settings = {
            "KERNELS_HUB": f"file://{hub}",
            "KERNELS_CACHE": str(tmp_path / "cache"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
        }
        done = subprocess.run(
            [sys.executable, *words],
            check=False,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def blocks(kind):
    text = (ROOT / "docs" / "guide" / "layers.md").read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_listing_of_the_guide_prints_what_stands_below_it(run_python):
    assert run_python("-c", blocks("python")[0]) == blocks("text")[0]


@pytest.mark.parametrize("select", ["mapped", "measured"])
def test_the_example_prints_its_table(run_python, select):
    example = ROOT / "examples" / "rmsnorm_kernelized.py"
    sizes = ["--rows", "8", "64", "--hidden", "64", "--calls", "2"]
    output = run_python(example, *sizes, "--select", select)
    errors = [float(text) for text in re.findall(r"against float64: (\S+)", output)]
    assert len(errors) == 2
    assert max(errors) < 1e-6
    rows = re.findall(r"^ +(\d+) \| +[\d.]+ \| +[\d.]+ \| [\d.]+x$", output, re.MULTILINE)
    assert rows == ["8", "64"]
    assert "kernels-community/triton-layer-norm@v1:LlamaRMSNorm" in output
    if select == "measured":
        assert "float32 64x64 recorded" in output
