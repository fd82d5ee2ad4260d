"""Every listing of the seeds runs on a GPU and prints what is stated; so does the table with a kernel.

First: make gpu-build, or a hub with our kernels in KERNELS_HUB.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "examples" / "seeds"
OUTPUTS = tomllib.loads((SEEDS / "outputs.toml").read_text(encoding="utf-8"))
KERNELS = ("activation", "gemm", "img2gray", "triton-layer-norm")
ROWS = ["256", "512", "1024", "2048", "4096", "8192", "16384", "32768"]
# What the example's largest error may be: half a unit in the last place of float16, with a margin.
LARGEST_ERROR = 1e-3
JUDGE_GEMM = """
import runpy, sys, torch
names = runpy.run_path(sys.argv[1])
def widen(scale, count):
    return scale.double().repeat_interleave(128, 0)[:, :count]
a = names["A_fp8"].double() * widen(names["A_scale"], names["M"])
b = names["B_fp8"].double() * widen(names["B_scale"].repeat_interleave(128, 1), names["N"])
expected = a.T @ b
print(((names["result"].double() - expected).abs().max() / expected.abs().max()).item())
"""


def python(*words: object, code: int = 0) -> str:
    """Run Python; our kernels come from what is built here, unless KERNELS_HUB names a hub."""
    environ = dict(os.environ)
    if "KERNELS_HUB" not in environ:
        built = [ROOT / "kernels-community" / name for name in KERNELS]
        paths = [f"kernels-community/{path.name}={path}" for path in built]
        environ |= {"LOCAL_KERNELS": ":".join(paths), "HF_HUB_OFFLINE": "1"}
    path = os.environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *([path] if path else [])])
    environ["PYTHONIOENCODING"] = "utf-8"
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=SEEDS,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def match(output: str, patterns: list[str]) -> None:
    """Find each pattern behind the one before it."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.MULTILINE).search(output, at)
        assert found, f"{pattern} is not in\n{output[at:]}"
        at = found.end()


@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_a_listing_prints_what_is_stated(name: str) -> None:
    output = python(name)
    print(output)
    match(output, OUTPUTS[name])


def test_gemm_is_right() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("gemm is for Hopper")
    # One rounding to bfloat16.
    assert float(python("-c", JUDGE_GEMM, "gemm.py")) < 2**-8


def test_flash_attn_is_told_not_to_exist() -> None:
    last = python("flash_attn.py", code=1).splitlines()[-1]
    assert "kernels-community/flash-attn" in last


def test_the_table_comes_from_a_model_that_runs_the_kernel() -> None:
    output = python(ROOT / "examples" / "rmsnorm_kernelized.py")
    print(output)
    errors = [float(text) for text in re.findall(r"against float64: (\S+)", output)]
    assert len(errors) == 2
    assert max(errors) < LARGEST_ERROR
    rows = re.findall(r"^ *(\d+) \| +[\d.]+ \| +[\d.]+ \| [\d.]+x$", output, re.MULTILINE)
    assert rows == ROWS
    assert "1 of 1 layers run a kernel" in output
