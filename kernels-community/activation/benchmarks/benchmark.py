"""Time every function against eager torch, on one thread and on all, beside its error.

    python benchmarks/benchmark.py [--elements 8388608] [--rounds 31]

Kernel and torch take turns, and each figure is the median, so that a busy machine
burdens both. torch allocates its result in every call, as models do; the kernel
writes into one tensor. The error is the largest difference from the reference in
float64, relative to 1 + |reference|.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

REPO_ID = "kernels-community/activation"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ROW = 4096


def halves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.chunk(2, dim=-1)


# What one would write without the kernel.
EAGER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "silu_and_mul": lambda x: F.silu(halves(x)[0]) * halves(x)[1],
    "mul_and_silu": lambda x: halves(x)[0] * F.silu(halves(x)[1]),
    "gelu_and_mul": lambda x: F.gelu(halves(x)[0]) * halves(x)[1],
    "gelu_tanh_and_mul": lambda x: F.gelu(halves(x)[0], approximate="tanh") * halves(x)[1],
    "fatrelu_and_mul": lambda x: F.threshold(halves(x)[0], 0.0, 0.0) * halves(x)[1],
}


def median_ms(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Time the calls in turns; the median of each, in milliseconds."""
    times: list[list[float]] = [[] for _ in calls]
    for round_number in range(-3, rounds):
        for call, samples in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            if round_number >= 0:
                samples.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(samples) for samples in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=1 << 23, help="of the result")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()

    project = Path(__file__).resolve().parents[1]
    os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={project}")
    from kernels import get_kernel

    activation = get_kernel(REPO_ID)
    rows = max(1, options.elements // ROW)
    all_threads = torch.get_num_threads()
    print(
        f"{REPO_ID} ({activation.ops._cpu_isa()}), torch {torch.__version__}, result {rows}x{ROW}"
    )
    print("| function | dtype | threads | kernel ms | torch ms | torch / kernel | error |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for name, eager in EAGER.items():
        for dtype_name, dtype in DTYPES.items():
            torch.manual_seed(0)
            x = torch.randn(rows, ROW if "_and_" not in name else 2 * ROW).to(dtype)
            out = torch.empty(rows, ROW, dtype=dtype)
            function = getattr(activation, name)

            function(out[:64], x[:64])
            expected = getattr(activation.reference, name)(x[:64].double())
            error = ((out[:64].double() - expected).abs() / (1 + expected.abs())).max().item()

            for threads in sorted({1, all_threads}):
                torch.set_num_threads(threads)
                kernel_ms, eager_ms = median_ms(
                    [lambda: function(out, x), lambda: eager(x)],  # noqa: B023
                    options.rounds,
                )
                print(
                    f"| {name} | {dtype_name} | {threads} | {kernel_ms:.3f} | {eager_ms:.3f} "
                    f"| {eager_ms / kernel_ms:.2f} | {error:.1e} |"
                )


if __name__ == "__main__":
    main()
