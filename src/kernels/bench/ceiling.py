"""The fastest that this device can do, measured beside the kernels: bytes and operations a second."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from kernels.bench.case import Call, Case
from kernels.bench.timing import Timer, Way, time_in_turns

DEVICE_COPY_BYTES = 1 << 30
HOST_COPY_BYTES = 128 << 20
ROUNDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """What a copy and a matrix product reach here.

    Attributes:
        bytes_per_second: read and written by a copy of 1 GiB (on a CPU 128 MiB).
        flops_per_second: of a large matrix product by torch, for each dtype that was asked for.
    """

    bytes_per_second: float
    flops_per_second: dict[str, float]

    def least_us(self, case: Case) -> float:
        """The time below which no version of a case can come, in microseconds; 0 if unknown."""
        moving = case.moved_bytes / self.bytes_per_second
        peak = self.flops_per_second.get(case.dtype, 0.0)
        return max(moving, case.flops / peak if peak else 0.0) * 1e6


def measure_copy(timer: Timer, device: Any) -> Ceiling:
    """Measure what a copy reaches on a ``torch.device``; of products nothing is known yet."""
    import torch

    size = HOST_COPY_BYTES if device.type == "cpu" else DEVICE_COPY_BYTES
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    us = _median_us(timer, lambda: target.copy_(source), "cold")
    return Ceiling(bytes_per_second=2 * size / us * 1e6, flops_per_second={})


def measure_products(ceiling: Ceiling, dtype: str, timer: Timer, device: Any) -> Ceiling:
    """Return a ceiling with what a matrix product of a dtype reaches, measured unless it is known.

    The product is of two square matrices of 8192 rows, on a CPU of 512.
    FP8 types with one scale for each operand, on a GPU; otherwise 8-bit types count as bfloat16.
    """
    if dtype in ceiling.flops_per_second:
        return ceiling
    n = 512 if device.type == "cpu" else 8192
    us = _median_us(timer, _make_product(dtype, n, device), "warm")
    known = ceiling.flops_per_second | {dtype: 2 * n**3 / us * 1e6}
    return Ceiling(bytes_per_second=ceiling.bytes_per_second, flops_per_second=known)


def _make_product(dtype: str, n: int, device: Any) -> Call:
    import torch

    kind = getattr(torch, dtype)
    narrow = not kind.is_floating_point or kind.itemsize == 1
    if dtype.startswith("float8") and device.type != "cpu":
        from torch.nn.functional import ScalingType, scaled_mm

        a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
        one, whole = torch.ones((), device=device), ScalingType.TensorWise
        return lambda: scaled_mm(a, b.t(), one, whole, one, whole, output_dtype=torch.bfloat16)
    a, b = (torch.randn(n, n, device=device).to(torch.bfloat16 if narrow else kind) for _ in "ab")
    return lambda: a @ b


def _median_us(timer: Timer, call: Call, way: Way) -> float:
    return statistics.median(time_in_turns(timer, {"it": call}, way, rounds=ROUNDS)["it"])
