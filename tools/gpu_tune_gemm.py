"""Time every tile of gemm on a Hopper GPU, and fit to the times what `tile_table.h` says a tile costs.

    python tools/gpu_tune_gemm.py time FILE [--run NUMBER] [--rounds 5]     on the GPU
    python tools/gpu_tune_gemm.py fit [FILE]                                anywhere, with numpy

FILE is docs/kernels/gemm.json; `time` adds to its `every tile`, `fit` reads that. `fit` prints the
table, and how much slower than the fastest tile the picks are where all tiles were timed: by the fit,
and for each shape by a fit to all the others. The estimate is the one of `tile_table.h`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
TABLE = ROOT / "kernels-community/gemm/csrc/cuda/tile_table.h"
FILE = ROOT / "docs/kernels/gemm.json"
PROCESSORS = 132
BYTES_PER_MICROSECOND = 13.1e6  # kCacheBytesPerMicrosecond
ROWS = (
    *(1, 5, 8, 16, 32, 48, 64, 65, 96, 100, 128, 130, 160, 192, 200, 256, 300, 333, 384, 500, 512),
    *(640, 700, 768, 896, 1000, 1024, 1025, 1200, 1536, 2000, 2048, 3000, 4095, 4096),
)
COLUMNS_AND_K = (
    *((1536, 7168), (4608, 7168), (7168, 2304), (4096, 4096)),
    *((7168, 256), (2048, 7168), (8192, 1024)),
)

Shape = tuple[int, int, int]
Times = dict[str, float]  # microseconds of each tile, by its words


@dataclass(frozen=True, kw_only=True)
class Tile:
    """What the estimate needs of a tile; `words` are its template arguments."""

    words: str
    rows: int
    columns: int
    along_m: int
    along_n: int
    splits: int
    per_processor: int


def parse_tile(words: str) -> Tile:
    """Read ``groups, waves, columns, share, sharers, splits, blocks a processor[, parts]``."""
    groups, waves, columns, share, sharers, splits, per_processor, *_ = words.split(", ")
    return Tile(
        words=words,
        rows=64 * int(groups) * int(waves),
        columns=int(columns),
        along_m=int(sharers) if share.endswith("kB") else 1,
        along_n=int(sharers) if share.endswith("kA") else 1,
        splits=int(splits),
        per_processor=int(per_processor),
    )


def read_tiles() -> list[Tile]:
    """Return the compiled tiles, in their order."""
    return [parse_tile(words) for words in re.findall(r"^    Tile<(.*?)>", TABLE.read_text(), re.M)]


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def weigh(tile: Tile, shape: Shape) -> tuple[list[float], float]:
    """How often an estimate counts each cost of a tile, and what the bytes of the product take."""
    m, n, k = shape
    cluster = tile.along_m * tile.along_n * tile.splits
    units = ceil(m, tile.rows * tile.along_m) * ceil(n, tile.columns * tile.along_n)
    blocks = units * cluster
    reached = PROCESSORS * 10 // 11 if cluster > 2 else PROCESSORS
    rounds = ceil(blocks, reached * tile.per_processor)
    together = min(tile.per_processor, ceil(blocks, reached))
    alone, beside, full = 0.0, 0.0, 1.0
    if rounds == 1 and together == 1:
        beside = blocks / reached
        alone, full = 1.0 - beside, 0.0
    elif rounds == 1:
        full = (together - 1) / (tile.per_processor - 1)
        beside = 1.0 - full
    steps = ceil(k // 128, tile.splits)
    loaded = min(tile.rows, m)
    counted = rounds * steps
    part = counted * (loaded + tile.columns) / (tile.rows + tile.columns)
    sums = together if tile.splits > 1 else 1
    weights = [counted * alone, part * beside, part * full, rounds * sums, 1.0]
    fetched = loaded / tile.along_n + tile.columns / tile.along_m
    return weights, blocks * steps * 128 * fetched / BYTES_PER_MICROSECOND


def estimate(tile: Tile, cost: list[float], shape: Shape) -> float:
    weights, bytes_us = weigh(tile, shape)
    steps_us = sum(w * c for w, c in zip(weights[:3], cost[:3], strict=True))
    return max(steps_us, bytes_us) + weights[3] * cost[3] + cost[4]


def solve(rows: list[list[float]], wanted: list[float]) -> list[float]:
    """Return the least squares of the costs, none negative: the best of all that leave some at 0."""
    import numpy as np

    matrix, right = np.array(rows), np.array(wanted)
    size = matrix.shape[1]
    best, least = [0.0] * size, float("inf")
    for count in range(1, size + 1):
        for kept in itertools.combinations(range(size), count):
            found, *_ = np.linalg.lstsq(matrix[:, kept], right, rcond=None)
            error = float(((matrix[:, kept] @ found - right) ** 2).sum())
            if (found >= 0).all() and error < least:
                least, best = error, [0.0] * size
                for at, value in zip(kept, found, strict=True):
                    best[at] = float(value)
    return best


def fit_tile(tile: Tile, data: list[tuple[Shape, Times]]) -> list[float]:
    """Fit one tile's costs, as round as the table has them.

    A time counts less the further it is from the fastest tile's. No step is faster where more run.
    """
    cost: list[float] | None = None
    for _ in range(3):
        rows, wanted = [], []
        for shape, times in data:
            if tile.words not in times:
                continue
            weights, bytes_us = weigh(tile, shape)
            if cost is not None and estimate(tile, [*cost[:3], 0.0, 0.0], shape) <= bytes_us:
                continue  # a time of the cache, not of the tile
            time = times[tile.words]
            importance = (min(times.values()) / time) ** 2 / time
            alone, beside, full, *others = weights
            added = [alone + beside + full, beside + full, full, *others]
            rows.append([weight * importance for weight in added])
            wanted.append(time * importance)
        alone, beside, full, *others = solve(rows, wanted)
        cost = [alone, alone + beside, alone + beside + full, *others]
    assert cost is not None
    return [round(value, digits) for value, digits in zip(cost, (3, 3, 3, 2, 1), strict=True)]


def find_loss(tiles: list[Tile], costs: list[list[float]], shape: Shape, times: Times) -> float:
    """How much longer the pick takes than the fastest: 0.1 is 10 %."""
    pick, _ = min(zip(tiles, costs, strict=True), key=lambda each: estimate(*each, shape))
    return times[pick.words] / min(times[tile.words] for tile in tiles) - 1


def describe(name: str, losses: list[float]) -> str:
    within = sum(loss < 0.02 for loss in losses) / len(losses)
    return (
        f"{name}: the picks lose {statistics.mean(losses):.2%} in the mean, {max(losses):.0%} at"
        f" worst; {within:.0%} within 2 %, {sum(loss > 0.05 for loss in losses)} of {len(losses)}"
        " above 5 %"
    )


def read_times(path: Path) -> list[tuple[Shape, Times]]:
    rows = json.loads(path.read_text("utf-8"))["every tile"]["rows"]
    return [(tuple(row["shape"]), row["us"]) for row in rows]


def fit(path: Path) -> None:
    data = read_times(path)
    tiles = read_tiles()
    whole = [point for point in data if all(tile.words in point[1] for tile in tiles)]
    if not whole:
        sys.exit(f"{path} has no shape with times of all tiles that are compiled now")
    costs = [fit_tile(tile, data) for tile in tiles]
    for tile, cost in zip(tiles, costs, strict=True):
        print("    {{{:.3f}, {:.3f}, {:.3f}, {:.2f}, {:.1f}}},".format(*cost), f" // {tile.words}")
    print(describe("fit", [find_loss(tiles, costs, *point) for point in whole]))
    others = []
    for shape, times in whole:
        rest = [point for point in data if point[0] != shape]
        left_out = [fit_tile(tile, rest) for tile in tiles]
        others.append(find_loss(tiles, left_out, shape, times))
    print(describe("each shape by a fit to the others", others))


def record(call: Callable[[], object], count: int) -> Callable[[], None]:
    """Return the replay of a recorded graph of `count` calls."""
    import torch

    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph.replay


def time_tiles(gemm: Any, tiles: list[Tile], shape: Shape, rounds: int) -> Times:
    """Time each tile in a recorded graph, all in turns."""
    import torch
    from gpu_timing import medians, time_in_turns

    m, n, k = shape
    a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
    a_scale = torch.rand(k // 128, m, device="cuda").t()
    b_scale = torch.rand(ceil(n, 128), k // 128, device="cuda")
    c = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    count = max(4, min(20, int(2e12 / (2 * m * n * k))))
    calls = {
        tile.words: record(
            lambda number=number: gemm.ops.gemm_out(c, a, b, a_scale, b_scale, True, number), count
        )
        for number, tile in enumerate(tiles)
    }
    times = time_in_turns(calls, "loop", rounds=rounds, repeats=1)
    return {name: float(f"{us / count:.5g}") for name, us in medians(times).items()}


def dump(value: object, depth: int = 0) -> str:
    """Return JSON with one line for each row, as docs/kernels/gemm.json has it."""
    pad = " " * depth
    match value:
        case dict() if depth < 3 and any(isinstance(each, (dict, list)) for each in value.values()):
            items = (f"{pad} {json.dumps(key)}: {dump(v, depth + 1)}" for key, v in value.items())
            return "{\n" + ",\n".join(items) + f"\n{pad}}}"
        case [dict(), *_]:
            lines = (f"{pad} {json.dumps(each, ensure_ascii=False)}" for each in value)
            return "[\n" + ",\n".join(lines) + f"\n{pad}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def time(path: Path, run: int, rounds: int) -> None:
    os.environ.setdefault("LOCAL_KERNELS", f"kernels-community/gemm={TABLE.parents[2]}")
    from kernels import get_kernel

    gemm = get_kernel("kernels-community/gemm")
    tiles = read_tiles()
    document = json.loads(path.read_text("utf-8"))
    for m, (n, k) in itertools.product(ROWS, COLUMNS_AND_K):
        times = time_tiles(gemm, tiles, (m, n, k), rounds)
        fastest = min(times, key=lambda word: times[word])
        print(f"{m}, {n}, {k}: {times[fastest]} us by {fastest}", flush=True)
        document["every tile"]["rows"].append({"shape": [m, n, k], "run": run, "us": times})
    path.write_text(dump(document) + "\n", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("time", "fit"))
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--run", type=int, default=0, help="a number that tells runs apart")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.what == "time":
        time(options.file, options.run, options.rounds)
    else:
        fit(options.file)


if __name__ == "__main__":
    main()
