"""Each instruction set of this processor, in a process of its own: the choice is made once."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

# The subprocesses load the kernel by its name; without a build there is none.
pytestmark = pytest.mark.usefixtures("activation")

HERE = Path(__file__).parent
# Ordered from the best; what the kernel asks of cpuid for each.
ISAS = {
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"},
    "avx2": {"avx2", "fma", "f16c"},
    "baseline": set(),
}


def processor_flags() -> set[str]:
    path = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not path.exists():
        return set()
    return set(
        next(line for line in path.read_text().splitlines() if line.startswith("flags")).split()
    )


@pytest.fixture(autouse=True)
def device() -> str:
    """The one device that these tests are about, whichever others there are."""
    return "cpu"


def run(isa: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "KERNELS_ACTIVATION_ISA": isa, "KERNELS_TEST_DEVICES": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )


PRINT_ISA = (
    "from kernels import get_kernel;"
    "print(get_kernel('kernels-community/activation').ops._cpu_isa())"
)


@pytest.mark.parametrize("isa", ISAS)
def test_the_results_are_right_on_each_instruction_set(isa: str) -> None:
    if not ISAS[isa] <= processor_flags():
        pytest.skip(f"this processor has no {isa}")
    assert run(isa, "-c", PRINT_ISA).stdout.strip() == isa
    accuracy = HERE / "test_activation_accuracy.py"
    result = run(
        isa,
        "-m",
        "pytest",
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        str(accuracy),
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_best_instruction_set_is_the_default() -> None:
    expected = next(isa for isa, flags in ISAS.items() if flags <= processor_flags())
    assert run("", "-c", PRINT_ISA).stdout.strip() == expected


def test_an_unknown_instruction_set_is_an_error_that_names_those_there_are() -> None:
    result = run("avx1024", "-c", PRINT_ISA)
    assert result.returncode != 0
    assert "KERNELS_ACTIVATION_ISA is 'avx1024'" in result.stderr
    assert "baseline" in result.stderr
