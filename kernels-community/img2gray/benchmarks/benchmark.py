"""Time `img2gray` against eager torch, on one thread and on all.

    python benchmarks/benchmark.py [--rounds 31]

Kernel and torch take turns, and each figure is the median, so that a busy machine
burdens both. Every result is first compared with the reference, bit by bit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

REPO_ID = "kernels-community/img2gray"
SIZES = [(480, 640), (1080, 1920), (2160, 3840)]


def weigh(image: torch.Tensor) -> torch.Tensor:
    """What one would write without the kernel; for uint8 it rounds in float32 before the cut."""
    red, green, blue = image.unbind(-1)
    return (0.21 * red + 0.72 * green + 0.07 * blue).to(image.dtype)


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
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()

    project = Path(__file__).resolve().parents[1]
    os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={project}")
    from kernels import get_kernel

    kernel = get_kernel(REPO_ID)
    all_threads = torch.get_num_threads()
    print(f"{REPO_ID}, torch {torch.__version__}")
    print("| picture | layout | dtype | threads | kernel ms | torch ms | torch / kernel |")
    print("|---|---|---|--:|--:|--:|--:|")
    for height, width in SIZES:
        for dtype in (torch.uint8, torch.float32):
            for layout in ("hwc", "chw"):
                torch.manual_seed(0)
                image = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8).to(dtype)
                given = image if layout == "hwc" else image.movedim(-1, 0).contiguous()
                pixels = image if layout == "hwc" else given.movedim(0, -1)
                found = kernel.img2gray(given, layout=layout)
                if not torch.equal(found, kernel.reference.img2gray(image)):
                    raise SystemExit(f"wrong result for {dtype}, {layout}, {height}x{width}")
                for threads in sorted({1, all_threads}):
                    torch.set_num_threads(threads)
                    kernel_ms, eager_ms = median_ms(
                        [
                            lambda: kernel.img2gray(given, layout=layout),  # noqa: B023
                            lambda: weigh(pixels),  # noqa: B023
                        ],
                        options.rounds,
                    )
                    print(
                        f"| {width}x{height} | {layout} | {str(dtype).removeprefix('torch.')} "
                        f"| {threads} | {kernel_ms:.3f} | {eager_ms:.3f} "
                        f"| {eager_ms / kernel_ms:.1f} |"
                    )


if __name__ == "__main__":
    main()
