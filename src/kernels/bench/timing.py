"""Times calls in turns, so that all of them meet the same machine.

On a device with events (CUDA, ROCm, XPU) there are three ways, since each hides what another shows:

- ``cold``: the caches are overwritten before each call; time on the device alone.
- ``warm``: the caches are as the last call of the same function left them; likewise.
- ``loop``: calls follow each other without a gap, so that the time is that of the device or of the
  host, whichever is longer: what a small model feels. Short calls are many, since the first after a
  pause find nothing of theirs in the host's caches and take several times as long as those to come.

For the first two the device is kept busy while the host queues the call, so that the host's part is
not in the figure. On a CPU, ``cold`` and ``warm`` are wall time of a call, and there is no ``loop``.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from kernels.bench.case import Call
from kernels.errors import BenchmarkError

Way = Literal["cold", "warm", "loop"]
Times = dict[str, list[float]]

DEVICE_FLUSH_BYTES = 256 << 20  # several times the L2 cache of any device there is
HOST_FLUSH_BYTES = 128 << 20
SAMPLE_SECONDS = 0.01  # what the calls of one round take at most, roughly
MIN_REPEATS = 3
# A call that is timed alone is repeated for the median; in a loop, for what a call takes once it runs.
MAX_REPEATS: dict[Way, int] = {"cold": 20, "warm": 20, "loop": 500}


class Timer(Protocol):
    """Measures one call, repeated; a device's or the host's."""

    ways: Sequence[Way]

    def measure(self, call: Call, way: Way, repeats: int) -> float:
        """Return the median of the times, in microseconds."""


class DeviceTimer:
    """Times by the device's own events."""

    ways: Sequence[Way] = ("cold", "warm", "loop")

    def __init__(self, device: Any) -> None:
        import torch

        self._api = torch.get_device_module(device)
        self._flushed = torch.empty(DEVICE_FLUSH_BYTES, dtype=torch.uint8, device=device)
        self._cycles_per_us = self._calibrate()

    def measure(self, call: Call, way: Way, repeats: int) -> float:
        """Return the median of the times, in microseconds."""
        if way == "loop":
            return self._loop(call, repeats)
        lead = self._host_us(call) * 1.5 + 30
        pairs = [(self._event(), self._event()) for _ in range(repeats)]
        for start, end in pairs:
            self._stall(lead)
            if way == "cold":
                self._flushed.zero_()
            start.record()
            call()
            end.record()
        self._api.synchronize()
        return statistics.median(float(start.elapsed_time(end)) * 1e3 for start, end in pairs)

    def _loop(self, call: Call, repeats: int) -> float:
        start, end = self._event(), self._event()
        self._api.synchronize()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        self._api.synchronize()
        return float(start.elapsed_time(end)) * 1e3 / repeats

    def _event(self) -> Any:
        return self._api.Event(enable_timing=True)

    def _host_us(self, call: Call) -> float:
        """How long the host takes to queue the call; the shorter of two, to pass over a hiccup."""
        taken = []
        for _ in range(2):
            self._api.synchronize()
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        self._api.synchronize()
        return min(taken) * 1e6

    def _calibrate(self) -> float:
        if not hasattr(self._api, "_sleep"):
            return 0.0
        cycles = 2_000_000
        self._api._sleep(cycles)
        start, end = self._event(), self._event()
        start.record()
        self._api._sleep(cycles)
        end.record()
        self._api.synchronize()
        return cycles / (float(start.elapsed_time(end)) * 1e3)

    def _stall(self, us: float) -> None:
        if self._cycles_per_us:
            self._api._sleep(int(us * self._cycles_per_us))


class HostTimer:
    """Times by the clock on the wall."""

    ways: Sequence[Way] = ("cold", "warm")

    def __init__(self) -> None:
        import torch

        self._flushed = torch.empty(HOST_FLUSH_BYTES, dtype=torch.uint8)

    def measure(self, call: Call, way: Way, repeats: int) -> float:
        """Return the median of the times, in microseconds."""
        taken = []
        for _ in range(repeats):
            if way == "cold":
                self._flushed.fill_(1)
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken) * 1e6


def make_timer(device: Any) -> Timer:
    """Return the timer of a ``torch.device``."""
    return HostTimer() if device.type == "cpu" else DeviceTimer(device)


def ways_of(device: Any) -> Sequence[Way]:
    """Return the ways that the timer of a ``torch.device`` has."""
    return HostTimer.ways if device.type == "cpu" else DeviceTimer.ways


def time_in_turns(timer: Timer, calls: Mapping[str, Call], way: Way, *, rounds: int) -> Times:
    """Return the microseconds of every call in every round, after a round that warms up.

    The order changes with every round: a chip is slower after heavy work.

    Raises:
        BenchmarkError: a call failed; which, and how.
    """
    times: Times = {name: [] for name in calls}
    order = random.Random(0)
    name = ""
    try:
        repeats = {}
        for name, call in calls.items():
            repeats[name] = _find_repeats(timer, call, way)
        for number in range(-1, rounds):
            for name in order.sample(list(calls), len(calls)):
                taken = timer.measure(calls[name], way, repeats[name])
                if number >= 0:
                    times[name].append(taken)
    except Exception as err:
        raise BenchmarkError(name, f"{type(err).__name__}: {err}") from err
    return times


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the rounds of the peer's time divided by ours: above 1 we are faster."""
    return statistics.median(b / a for a, b in zip(ours, theirs, strict=True))


def _find_repeats(timer: Timer, call: Call, way: Way) -> int:
    timer.measure(call, way, 1)  # the first call may load or compile what it needs
    us = max(timer.measure(call, way, MIN_REPEATS), 1.0)
    return max(MIN_REPEATS, min(MAX_REPEATS[way], int(SAMPLE_SECONDS * 1e6 / us)))
