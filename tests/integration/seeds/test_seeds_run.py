"""Every listing of the seeds runs on a CPU, as it is printed, and prints what is stated."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
SEEDS = EXAMPLES / "seeds"
LAUNCHER = EXAMPLES / "run_on_cpu.py"
OUTPUTS = tomllib.loads((SEEDS / "outputs.toml").read_text())
# The gemm listing has no tensors, and flash-attn is not there yet.
RUN_AS_PRINTED = sorted(name for name in OUTPUTS if "/" not in name)
JUDGE_GEMM = """
import torch, run_on_cpu
names = run_on_cpu.run(run_on_cpu.Path(__import__("sys").argv[1]))
def widen(scale, count):
    return scale.double().repeat_interleave(128, 0)[:, :count]
a = names["A_fp8"].double() * widen(names["A_scale"], names["M"])
b = names["B_fp8"].double() * widen(names["B_scale"].repeat_interleave(128, 1), names["N"])
expected = a.T @ b
assert names["result"] is names["C"] or names["result"].data_ptr() == names["C"].data_ptr()
error = (names["result"].double() - expected).abs().max() / expected.abs().max()
print(f"error {error.item():.1e}")
"""
WHAT_RUNS = """
import run_on_cpu
from kernels import report
names = run_on_cpu.run(run_on_cpu.Path(__import__("sys").argv[1]))
print(report(names["kernel_model"]))
"""


@pytest.fixture
def python(run, hub):
    """Run Python beside the launcher, against our hub."""
    more = hub.environ | {"PYTHONPATH": str(EXAMPLES)}
    return lambda *words, code=0: run(sys.executable, *words, cwd=SEEDS, code=code, more=more)


def match(output: str, patterns: list[str]) -> None:
    """Find each pattern behind the one before it."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.MULTILINE).search(output, at)
        assert found, f"{pattern} is not in\n{output[at:]}"
        at = found.end()


@pytest.mark.parametrize("name", RUN_AS_PRINTED)
def test_as_printed(python, name: str) -> None:
    output = python(LAUNCHER, Path("as_printed") / name)
    match(output, OUTPUTS.get(f"as_printed/{name}", OUTPUTS[name]))


def test_with_its_braces_the_benchmark_prints_a_table(python) -> None:
    match(python(LAUNCHER, "rmsnorm_benchmark.py"), OUTPUTS["rmsnorm_benchmark.py"])


def test_gemm_is_right_and_prints_nothing(python) -> None:
    [line] = python("-c", JUDGE_GEMM, "gemm.py").splitlines()
    # One rounding to bfloat16.
    assert float(line.removeprefix("error ")) < 2**-8


def test_flash_attn_is_told_not_to_exist(python) -> None:
    last = python(LAUNCHER, "flash_attn.py", code=1).splitlines()[-1]
    assert "RepoNotFoundError: There is no kernel 'kernels-community/flash-attn'" in last
    assert "Did you mean" in last


def test_the_printed_kernel_model_runs_no_kernel(python) -> None:
    """Why there is ``examples/rmsnorm_kernelized.py``."""
    output = python("-c", WHAT_RUNS, "as_printed/rmsnorm_kernel.py")
    assert "0 of 1 layers run a kernel" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such_file.py"], "there is no file no_such_file.py"),
        (["--largest-size", "0", "gemm.py"], "--largest-size must be at least 1; found 0"),
    ],
)
def test_the_launcher_tells_wrong_usage(python, words: list[str], message: str) -> None:
    assert message in python(LAUNCHER, *words, code=2)


def test_the_launcher_hands_arguments_on(python, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\n"
        "print(sys.argv[1:], __name__)\n"
        "x = torch.zeros(3, 1000, device='cuda:0')\n"
        "y = torch.full((1000,), 1000).to(device='cuda').cuda()\n"
        "print(tuple(x.shape), x.device, tuple(y.shape), y[0].item(), y.device)\n"
    )
    output = python(LAUNCHER, "--largest-size", "8", script, "--rows", "5")
    assert output == "['--rows', '5'] __main__\n(3, 8) cpu (8,) 1000 cpu\n"
