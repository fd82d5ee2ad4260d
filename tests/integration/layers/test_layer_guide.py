"""The guide's listing and the example do what the pages say. Budget: see conftest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from listings import get_listing

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


def test_the_listing_of_the_guide_prints_what_stands_below_it(run_python):
    listing = get_listing("docs/guide/layers.md", "import torch\nfrom torch import nn\n")
    assert run_python("-c", listing) == get_listing("docs/guide/layers.md", "1 of 1 layers run")


ATTENTION = """
import torch
from torch import nn
from kernels import kernelize, report, Mode, use_kernel_forward_from_hub, use_kernelized_func
{listing}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()

kernelize(model := Model(), mode=Mode.INFERENCE, device="cpu")
print(*[layer.layer_name for layer in report(model).layers])
"""


def test_a_function_of_the_guide_is_found_in_the_layer_that_calls_it(run_python):
    listing = get_listing("docs/guide/layers.md", '@use_kernel_forward_from_hub("rotary_pos_emb")')
    assert run_python("-c", ATTENTION.format(listing=listing)) == "rotary_pos_emb\n"


def test_the_listings_for_transformers_and_diffusers(run_consumer, tmp_path):
    """A tiny Llama, and the norms that diffusers uses, by the lines of the guide."""
    listings = {
        "transformers": get_listing("docs/guide/layers.md", "import transformers\n"),
        "diffusers": get_listing("docs/guide/layers.md", "from torch import nn\n"),
    }
    for name, listing in listings.items():
        (tmp_path / f"{name}.py").write_text(listing)
    result = run_consumer(
        "guide.py", **{name.upper(): str(tmp_path / f"{name}.py") for name in listings}
    )
    assert result == {"RMSNorm": 5, "LayerNorm": ["kernel", "original"]}


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
