"""The benchmark's timer on a real device: what is in its figures, and what is not."""

from __future__ import annotations

import statistics
import time

import pytest
import torch

from kernels.bench.case import Case
from kernels.bench.measure import measure_cases
from kernels.bench.timing import DeviceTimer, time_in_turns

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def timer() -> DeviceTimer:
    return DeviceTimer(torch.device("cuda"))


@pytest.fixture
def small() -> torch.Tensor:
    return torch.ones(1024, device="cuda")


@pytest.mark.parametrize("way", ["cold", "warm"])
def test_a_slow_host_is_not_in_a_device_time(timer: DeviceTimer, small, way: str) -> None:
    def slow() -> None:
        time.sleep(0.002)
        small.add_(1)

    assert timer.measure(slow, way, 5) < 100
    assert timer.measure(slow, "loop", 5) > 1900


def test_a_cold_cache_costs_time(timer: DeviceTimer) -> None:
    # Small enough to stay in the cache, large enough that to read it from there shows.
    source = torch.ones(2 << 20, device="cuda")
    target = torch.empty_like(source)
    cold, warm = (
        statistics.median(
            time_in_turns(timer, {"it": lambda: target.copy_(source)}, way, rounds=5)["it"]
        )
        for way in ("cold", "warm")
    )
    assert warm < cold


def test_rows_of_a_device_have_three_ways() -> None:
    x = torch.ones(1 << 24, device="cuda")
    case = Case(
        op="double",
        shape=(1 << 24,),
        dtype="float32",
        ours=lambda: x * 2,
        expected=lambda: x.double() * 2,
        tolerance=1e-6,
        moved_bytes=8 << 24,
    )
    measured = measure_cases(
        [case], kernel="acme/toy", commit=None, device=torch.device("cuda"), rounds=3
    )
    [(_, ceiling, rows)] = measured
    assert [row.way for row in rows] == ["cold", "warm", "loop"]
    assert [row.flush for row in rows] == [True, False, False]
    assert ceiling.bytes_per_second > 5e10
    assert all(0.1 < row.fraction_of_ceiling < 3 for row in rows)
