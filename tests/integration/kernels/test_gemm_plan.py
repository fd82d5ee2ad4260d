"""How gemm cuts a product, from its own headers compiled for the host; and its CUDA build.

Budget: 5 s for the plan. The CUDA variant takes up to 90 s on two cores, no GPU.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gpu_tune_gemm
import pytest
from lacking import give_up, require_commands

from kernel_spec.binary import DeviceCode, read_device_code

GEMM = Path(__file__).parents[3] / "kernels-community" / "gemm"
HEADERS = GEMM / "csrc" / "cuda"
BUILDER = Path(sys.executable).parent / "kernel-builder"

# Prints the plan of each product, and ends with an error if a place is computed twice or never, or if
# tiles leave rows out or reach beyond the last.
PROGRAM = r"""
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include "tile_table.h"
using namespace gemm::cuda;

int cover(const Raster& raster, int64_t unit_rows, int64_t unit_columns, const Sizes& sizes) {
  std::vector<int> seen(raster.m_units * raster.n_units);
  for (int i = 0; i < raster.m_units * raster.n_units; ++i) {
    const Unit unit = find_unit(raster, i);
    if (unit.m < 0 || unit.m >= raster.m_units || unit.n < 0 || unit.n >= raster.n_units) return 1;
    if (seen[unit.m * raster.n_units + unit.n]++) return 2;
  }
  return raster.m_units * unit_rows < sizes.m || raster.n_units * unit_columns < sizes.n;
}

bool fills(int m, int units, int tile_rows) {
  int end = 0;
  for (int i = 0; i < units; ++i) {
    const int row = std::min(i * tile_rows, find_last_row(m, tile_rows));
    if (row > end) return false;
    end = row + tile_rows;
  }
  return m < tile_rows || end == m;
}

int main(int count, char** words) {
  for (int i = 1; i + 2 < count; i += 3) {
    const Sizes sizes{atoll(words[i]), atoll(words[i + 1]), atoll(words[i + 2]) / 128};
    for (const TileFacts& tile : kTiles) {
      const Raster raster = choose_raster(tile, sizes, 132);
      const int rows = tile.rows * tile.along_m, columns = tile.columns * tile.along_n;
      if (const int fault = cover(raster, rows, columns, sizes)) return fault;
      if (!fills(sizes.m, raster.m_units * tile.along_m, tile.rows)) return 5;
    }
    const Raster strips = choose_strips(sizes.m, sizes.n, 132);
    if (const int fault = cover(strips, 128, 128, sizes)) return fault;
    const Plan plan = choose_plan(sizes, 132);
    const TileFacts& tile = kTiles[plan.tile];
    if (plan.split < 1 || plan.split > sizes.m) return 3;
    if (plan.split < sizes.m && plan.split % (tile.rows * tile.along_m)) return 4;
    std::printf("%d %d %d %lld %lld\n", plan.tile, tile.rows, tile.splits,
                static_cast<long long>(plan.split), static_cast<long long>(sizes.m));
  }
}
"""


# Prints the estimate of every tile for each product, and every tile's costs in the last line.
ESTIMATES = r"""
#include <cstdio>
#include <cstdlib>
#include "tile_table.h"
using namespace gemm::cuda;

int main(int count, char** words) {
  for (int i = 1; i + 2 < count; i += 3) {
    const Sizes sizes{atoll(words[i]), atoll(words[i + 1]), atoll(words[i + 2]) / 128};
    for (const TileFacts& tile : kTiles) std::printf("%.9g ", estimate(tile, sizes, 132));
    std::puts("");
  }
  for (const TileFacts& tile : kTiles) {
    const auto& [step_alone, step_beside, step, end, launch] = tile.cost;
    std::printf("%g %g %g %g %g ", step_alone, step_beside, step, end, launch);
  }
}
"""


# Says of each product whether its kernel turns operands that lie the other way.
TURNS = r"""
#include <cstdio>
#include <cstdlib>
#include "tile_table.h"
using namespace gemm::cuda;

int main(int count, char** words) {
  for (int i = 1; i + 2 < count; i += 3) {
    const Sizes sizes{atoll(words[i]), atoll(words[i + 1]), atoll(words[i + 2]) / 128};
    std::puts(turns_within(sizes, 132) ? "within" : "before");
  }
}
"""


def ask(program_text: str, tmp_path: Path, shapes: list[tuple[int, int, int]]) -> list[str]:
    """Compile a program with gemm's headers, and return what it says of the shapes, by lines."""
    require_commands("g++")
    source = tmp_path / "plan.cpp"
    source.write_text(program_text)
    program = tmp_path / "plan"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-Wall", "-I", HEADERS, source, "-o", program], check=True
    )
    words = [str(number) for shape in shapes for number in shape]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"fault {done.returncode}"
    return done.stdout.splitlines()


def plan(tmp_path: Path, shapes: list[tuple[int, int, int]]) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in ask(PROGRAM, tmp_path, shapes)]


def test_every_place_is_computed_once(tmp_path: Path) -> None:
    sizes = [1, 7, 64, 65, 128, 129, 1000, 1024, 4096, 8200]
    shapes = [(m, n * 8, k) for m in sizes for n in sizes for k in (128, 7168)]
    assert len(plan(tmp_path, shapes)) == len(shapes)


def test_few_rows_are_divided_along_k_and_many_are_not(tmp_path: Path) -> None:
    few, many = plan(tmp_path, [(16, 4608, 7168), (8192, 8192, 8192)])
    _tile, rows, splits, _split, _m = few
    assert rows == 64
    assert splits > 1
    _tile, rows, splits, split, m = many
    assert rows >= 128
    assert splits == 1
    assert split == m


def test_a_few_hundred_rows_divide_k_once(tmp_path: Path) -> None:
    """Where they were timed, high tiles that divide K in two beat low ones and ones that do not."""
    for _tile, rows, splits, split, m in plan(
        tmp_path, [(128, 4608, 7168), (100, 8192, 4096), (256, 4096, 7168), (1024, 1024, 7168)]
    ):
        assert (rows, splits, split) == (128, 2, m)


def test_operands_are_turned_within_the_product_where_k_is_short_and_tiles_are_few(
    tmp_path: Path,
) -> None:
    within = [(64, 7168, 256), (1024, 7168, 256), (4096, 4096, 256), (8192, 8192, 128)]
    before = [(6144, 7168, 256), (1024, 1024, 384), (4096, 4096, 4096)]
    said = ask(TURNS, tmp_path, within + before)
    assert said == ["within"] * len(within) + ["before"] * len(before)


def test_a_poorly_filled_last_round_is_cut_in_another_way(tmp_path: Path) -> None:
    ((_tile, _rows, _splits, split, m),) = plan(tmp_path, [(5000, 5000, 5120)])
    assert 0 < split < m


def test_the_estimate_is_the_one_that_is_fitted_and_the_costs_are_its(tmp_path: Path) -> None:
    """What `tile_table.h` says is what `gpu_tune_gemm.py fit` finds in the measured times."""
    pytest.importorskip("numpy")
    shapes = [(8, 4608, 7168), (100, 4096, 4096), (300, 7168, 256), (4096, 4096, 4096)]
    *estimates, last = ask(ESTIMATES, tmp_path, shapes)
    words = [float(word) for word in last.split()]
    costs = [words[at : at + 5] for at in range(0, len(words), 5)]
    tiles = gpu_tune_gemm.read_tiles()
    for shape, line in zip(shapes, estimates, strict=True):
        expected = [gpu_tune_gemm.estimate(*each, shape) for each in zip(tiles, costs, strict=True)]
        assert [float(word) for word in line.split()] == pytest.approx(expected)
    data = gpu_tune_gemm.read_times(gpu_tune_gemm.FILE)
    timed = {word for _, times in data for word in times}
    for tile, cost in zip(tiles, costs, strict=True):
        if tile.words in timed:
            fitted = gpu_tune_gemm.fit_tile(tile, data)
            assert cost == pytest.approx(fitted, abs=1e-9), tile.words


@pytest.fixture(scope="module")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_commands("g++")
    project = tmp_path_factory.mktemp("gemm") / "gemm"
    shutil.copytree(GEMM, project, ignore=shutil.ignore_patterns("build"))
    command = [BUILDER, "build", project, "--backend", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    if done.returncode and "toolkit" in output:
        give_up(output.splitlines()[-1])
    assert done.returncode == 0, output
    # The assembler tells when it takes matrix instructions one by one, or forgoes registers.
    assert not re.search(r"\(C75\d\d\)", output), output
    (built,) = (project / "build").glob("*-cu*")
    return built


def test_the_cuda_variant_holds_code_for_hopper_alone(variant: Path) -> None:
    (library,) = variant.glob("*.so")
    assert set(read_device_code(library)) == {DeviceCode("cubin", "9.0a")}
    metadata = json.loads((variant / "metadata.json").read_text())
    assert metadata["backend"]["archs"] == ["9.0a"]
