"""Time the products beside cuBLAS on a Hopper GPU, in turns, and compare both with float64.

    python benchmarks/table.py [--rounds 9] [--json FILE] [--shape M,N,K ...]

All take turns in a new order every round; a figure is the median of the rounds, in
microseconds; a ratio is the median of the rounds' ratios. `graph` replays a recorded graph
of calls, so it is the device's time; `call` queues calls from Python, so it is the slower of
host and device. Inputs are the same in every call, as weights and activations of one layer
are: what fits into the L2 cache stays there.

* `cuBLAS` is `F.scaled_mm` with the same block scales, the same function.
* `one scale` is `F.scaled_mm` with one scale for each operand: less work, as a ceiling.
* `turned` is ours with both operands stored the other way round, K not the dense dimension.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

REPO_ID = "kernels-community/gemm"
BLOCK = 128
SHAPES = (
    "1024,1536,7168 1024,4608,7168 6144,1536,7168 6144,4608,7168 1024,7168,256 6144,7168,256"
    " 1024,7168,2304 6144,7168,2304 4096,4096,4096 8192,8192,8192 4096,7168,16384 64,4608,7168"
    " 1,4608,7168 16,4608,7168 128,7168,2304 256,1536,7168 2048,7168,2304"
)

Calls = dict[str, Callable[[], torch.Tensor]]


class Operands(NamedTuple):
    a: torch.Tensor  # M x K
    b: torch.Tensor  # N x K
    a_scale: torch.Tensor  # K/128 x M
    b_scale: torch.Tensor  # K/128 x N/128


def draw(m: int, n: int, k: int) -> Operands:
    """Random operands with scales between 1/e and e."""
    torch.manual_seed(0)
    blocks = k // BLOCK
    return Operands(
        a=torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn),
        b=torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn),
        a_scale=torch.empty(blocks, m, device="cuda").uniform_(-1, 1).exp(),
        b_scale=torch.empty(blocks, -(-n // BLOCK), device="cuda").uniform_(-1, 1).exp(),
    )


def turn(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.view(torch.uint8).t().contiguous().view(matrix.dtype)


def list_calls(gemm: object, operands: Operands) -> Calls:
    from torch.nn.functional import ScalingType

    a, b, a_scale, b_scale = operands
    a_turned, b_turned = turn(a), turn(b)
    blocks = b_scale.shape[0]
    padded = torch.zeros(b_scale.shape[1], -(-blocks // 4) * 4, device="cuda")
    padded[:, :blocks] = b_scale.t()
    one = torch.ones((), device="cuda")
    # Views are made once, for everybody.
    a_t, b_t, a_scale_t, padded_t = a.t(), b.t(), a_scale.t(), padded.t()
    rows, columns = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    whole = ScalingType.TensorWise
    out = torch.bfloat16
    return {
        "ours": lambda: gemm.gemm(a_t, b_t, a_scale, b_scale),
        "turned": lambda: gemm.gemm(a_turned, b_turned, a_scale, b_scale),
        "cuBLAS": lambda: F.scaled_mm(a, b_t, a_scale_t, rows, padded_t, columns, output_dtype=out),
        "one scale": lambda: F.scaled_mm(a, b_t, one, whole, one, whole, output_dtype=out),
    }


def drop_unsupported(calls: Calls) -> Calls:
    """cuBLAS refuses some shapes."""
    kept = {}
    for name, call in calls.items():
        try:
            call()
            torch.cuda.synchronize()
        except RuntimeError:
            continue
        kept[name] = call
    return kept


def record_graph(call: Callable[[], object], count: int) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph.replay


def time_once(call: Callable[[], object], count: int) -> float:
    """Microseconds of the device between the first and the last of `count` calls."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def take_turns(calls: dict[str, Callable[[], object]], count: int, rounds: int) -> dict:
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-2, rounds):
        random.shuffle(names)
        for name in names:
            time = time_once(calls[name], count)
            if number >= 0:
                times[name].append(time)
    return times


def summarise(times: dict[str, list[float]], calls: int) -> dict:
    summary = {f"{name}_us": statistics.median(each) / calls for name, each in times.items()}
    for name, other in (("ours", "cuBLAS"), ("turned", "ours"), ("ours", "one scale")):
        if name in times and other in times:
            ratios = [x / y for x, y in zip(times[name], times[other], strict=True)]
            summary[f"{name}/{other}"] = statistics.median(ratios)
    return summary


def measure_error(gemm: object, operands: Operands, result: torch.Tensor) -> float:
    """‖c - reference‖ / ‖reference‖ over at most 256 rows."""
    a, b, a_scale, b_scale = operands
    rows = torch.linspace(0, a.shape[0] - 1, min(256, a.shape[0]), device="cuda").long()
    some = a.view(torch.uint8)[rows].view(a.dtype)
    expected = gemm.reference.gemm_nt(some, b, a_scale.t()[rows], b_scale.t())
    return ((result[rows].double() - expected).norm() / expected.norm()).item()


def measure(gemm: object, m: int, n: int, k: int, rounds: int) -> dict:
    operands = draw(m, n, k)
    calls = drop_unsupported(list_calls(gemm, operands))
    errors = {
        name: measure_error(gemm, operands, calls[name]())
        for name in ("ours", "turned", "cuBLAS")
        if name in calls
    }
    count = 20 if m * n * k < 10**11 else 4
    graphs = {name: record_graph(call, count) for name, call in calls.items()}
    return {
        "shape": [m, n, k],
        "graph": summarise(take_turns(graphs, 1, rounds), count),
        "call": summarise(take_turns(calls, count, rounds), count),
        "error": errors,
    }


def show(row: dict) -> str:
    m, n, k = row["shape"]
    graph, call = row["graph"], row["call"]

    def cell(figures: dict, key: str, form: str) -> str:
        return format(figures[key], form) if key in figures else "-"

    cells = [
        f"{m}, {n}, {k}",
        *(cell(graph, f"{name}_us", ".1f") for name in ("ours", "cuBLAS", "one scale", "turned")),
        f"{2 * m * n * k / graph['ours_us'] / 1e6:.0f}",
        *(cell(graph, key, ".3f") for key in ("ours/cuBLAS", "turned/ours")),
        *(cell(call, f"{name}_us", ".1f") for name in ("ours", "cuBLAS")),
        cell(call, "ours/cuBLAS", ".3f"),
        *(cell(row["error"], name, ".2e") for name in ("ours", "cuBLAS")),
    ]
    return "| " + " | ".join(cells) + " |"


HEADER = """\
| M, N, K | ours | cuBLAS | one scale | turned | TFLOP/s | ours/cuBLAS | turned/ours \
| call: ours | call: cuBLAS | call ratio | error | cuBLAS' |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--shape", nargs="*", default=SHAPES.split())
    options = parser.parse_args()

    project = Path(__file__).resolve().parents[1]
    os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={project}")
    from kernels import get_kernel

    gemm = get_kernel(REPO_ID)
    meta = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(f"{REPO_ID} on {meta['gpu']}, torch {meta['torch']}", flush=True)
    print(HEADER, flush=True)
    rows = []
    for shape in options.shape:
        rows.append(measure(gemm, *map(int, shape.split(",")), options.rounds))
        print(show(rows[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"meta": meta, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
