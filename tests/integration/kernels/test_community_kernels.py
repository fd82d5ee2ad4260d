"""Our own kernels, built from source as a user builds them, against their own tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from lacking import require_commands

COMMUNITY = Path(__file__).parents[3] / "kernels-community"
KERNELS = ["activation", "gemm", "img2gray"]
BUILDER = Path(sys.executable).parent / "kernel-builder"
# Compiled for processors that the loading machine may not have.
ISA_UNITS = sorted(COMMUNITY.glob("*/csrc/cpu/avx*_*.cpp"))


def run(*command: object, **environment: str) -> None:
    result = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_builds_and_passes_its_own_tests(name: str, tmp_path: Path) -> None:
    require_commands("g++")
    project = tmp_path / name
    shutil.copytree(COMMUNITY / name, project, ignore=shutil.ignore_patterns("build"))
    run(BUILDER, "build", project, "--backend", "cpu")
    run(
        *(sys.executable, "-m", "pytest", "-q", "--import-mode=importlib"),
        *("-p", "no:cacheprovider", project / "tests"),
        # A kernel that did not get built fails its tests here, instead of skipping them.
        CI="true",
        LOCAL_KERNELS=f"kernels-community/{name}={project}",
    )
    run(BUILDER, "check", project, "--gate")


@pytest.mark.parametrize("source", ISA_UNITS, ids=lambda path: path.stem)
def test_a_unit_for_newer_processors_shares_no_function_with_the_others(
    source: Path, tmp_path: Path
) -> None:
    """The linker keeps one copy of a weak symbol, and might keep the one with AVX-512 in it."""
    require_commands("g++")
    unit = tmp_path / "unit.o"
    run("g++", "-std=c++20", "-O2", "-fPIC", "-c", source, "-o", unit)
    with unit.open("rb") as file:
        symbols = list(ELFFile(file).get_section_by_name(".symtab").iter_symbols())
    shared = [s.name for s in symbols if s["st_info"]["bind"] in ("STB_WEAK", "STB_LOOS")]
    assert shared == []
    # It needs nothing of the C++ library either, where such functions would come from.
    needed = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF" and s.name}
    assert needed <= {"memcpy", "memset", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}


def test_there_are_units_for_newer_processors() -> None:
    assert {path.stem for path in ISA_UNITS} >= {
        "avx2_activation",
        "avx512_activation",
        "avx2_img2gray",
    }
