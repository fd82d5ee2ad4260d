"""Times calls on a GPU with device events, in turns, so that all meet the same machine.

Three ways, since each hides what another shows:

- ``cold``: the L2 cache is overwritten before each call; time on the device alone.
- ``warm``: the cache is as the last call of the same function left it; likewise.
- ``loop``: calls follow each other without a gap, so that the time is that of the device or
  of the host, whichever is longer: what a small model feels.

For the first two the device is kept busy while the host queues the call, so that the
host's part is not in the figure.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping

import torch

Call = Callable[[], object]
WAYS = ("cold", "warm", "loop")
LEAD_CYCLES = 400_000  # about 0.2 ms, longer than any of the calls needs on the host
FLUSH_BYTES = 256 << 20  # several times the L2 cache

_flush_buffers: dict[int, torch.Tensor] = {}


def _flush() -> None:
    device = torch.cuda.current_device()
    if device not in _flush_buffers:
        _flush_buffers[device] = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    _flush_buffers[device].zero_()


def _events(count: int) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
    def event() -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)

    return [(event(), event()) for _ in range(count)]


def time_single(call: Call, *, cold: bool, repeats: int) -> float:
    """Median device time of one call, in microseconds."""
    pairs = _events(repeats)
    for start, end in pairs:
        torch.cuda._sleep(LEAD_CYCLES)
        if cold:
            _flush()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) * 1e3 for start, end in pairs)


def time_loop(call: Call, *, repeats: int) -> float:
    """Time of one call among many without a gap, in microseconds."""
    [(start, end)] = _events(1)
    torch.cuda.synchronize()
    start.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / repeats


def time_in_turns(
    calls: Mapping[str, Call], way: str, *, rounds: int = 7, repeats: int = 20
) -> dict[str, list[float]]:
    """Microseconds of every call in every round, after a round of warming up.

    The order changes with every round: the chip is slower after heavy work.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    for round_number in range(-1, rounds):
        for name, call in order.sample(list(calls.items()), len(calls)):
            if way == "loop":
                taken = time_loop(call, repeats=repeats)
            else:
                taken = time_single(call, cold=way == "cold", repeats=repeats)
            if round_number >= 0:
                times[name].append(taken)
    return times


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each list."""
    return {name: statistics.median(values) for name, values in times.items()}
