"""What is measured and how it is judged: errors, turns, ceilings, wrong results."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.bench.case import Case, largest_error, poison
from kernels.bench.ceiling import Ceiling, measure_products
from kernels.bench.measure import measure_cases
from kernels.bench.timing import HostTimer, median_ratio, time_in_turns

CPU = torch.device("cpu")
NAN, INF = float("nan"), float("inf")


def case(ours, **given) -> Case:
    facts = {
        "op": "double",
        "shape": (3,),
        "dtype": "float32",
        "expected": lambda: torch.tensor([0.0, 2.0, 4.0]),
        "tolerance": 1e-3,
    }
    return Case(ours=ours, **(facts | given))


def measure(*cases: Case, **given):
    found = measure_cases(
        cases, kernel="acme/toy", commit=None, device=CPU, ways=["warm"], rounds=1, **given
    )
    return [row for each in found for row in each.rows]


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.5 / 3),
        ([NAN, INF, -INF], [NAN, INF, -INF], 0.0),
        ([NAN], [1.0], INF),
        ([1.0], [NAN], INF),
        ([INF], [-INF], INF),
        ([1.0], [INF], INF),
        ([1.0], [1.0, 2.0], INF),
        ([], [], 0.0),
        ([1 + 1j], [1 - 1j], 2 / (1 + 2**0.5)),  # the imaginary part counts
        ([2**53 + 1], [2**53], 1 / (1 + 2.0**53)),  # float64 has no such number
        ([True, False], [1, 1], 0.5),
        # In int64 these differences begin anew below zero.
        ([2**63 - 1], [-1], 2.0**62),
        ([5], [-(2**63)], 1.0),
        ([-(2**63)], [0], 2.0**63),
    ],
)
def test_the_largest_error(found: list[Any], expected: list[Any], error: float) -> None:
    assert largest_error(torch.tensor(found), torch.tensor(expected)) == pytest.approx(error, abs=0)


def test_the_largest_number_is_not_minus_one() -> None:
    most, least = torch.tensor([2**64 - 1], dtype=torch.uint64), torch.tensor([-1])
    assert largest_error(most, most) == 0
    assert largest_error(most, least) > 1
    assert largest_error(least, most) > 0.5


def test_what_is_not_written_is_not_right() -> None:
    out = torch.tensor([0.0, 2.0, 4.0])  # as if left by an earlier call
    [row] = measure(case(lambda: out, out=out))
    assert row.max_error == INF
    assert row.wrong[0].startswith("ours: error inf")
    numbers = torch.tensor([1, 2], dtype=torch.uint8)
    poison(numbers)
    assert numbers.tolist() == [77, 77]
    waves = torch.ones(2, dtype=torch.complex64)
    poison(waves)
    assert waves.isnan().all()


def test_a_call_may_leave_its_result_in_out() -> None:
    out, right = torch.empty(3), torch.tensor([0.0, 2.0, 4.0])
    [row] = measure(case(lambda: out.copy_(right) is None, out=out))
    assert row.max_error == 0
    assert row.wrong == ()


def test_a_peer_that_computes_something_else_is_named() -> None:
    right = torch.tensor([0.0, 2.0, 4.0])
    [row] = measure(
        case(right.clone, peers={"near": lambda: right + 2e-3, "far": lambda: right + 1})
    )
    assert row.max_error == 0
    assert [line.partition(":")[0] for line in row.wrong] == ["far"]


def test_a_row_tells_what_was_measured() -> None:
    right = torch.tensor([0.0, 2.0, 4.0])
    [row] = measure(
        case(right.clone, peers={"eager": right.clone}, references={"copy": right.clone})
    )
    assert row.kernel == "acme/toy.double"
    assert row.spread_us[0] <= row.ours_us <= row.spread_us[1]
    assert set(row.peers) == set(row.ratios) == {"eager"}
    assert set(row.references) == {"copy"}
    assert row.best_peer == "eager"
    assert not row.wrong


def test_cases_are_taken_one_by_one() -> None:
    taken = []

    def cases():
        for name in ("a", "b"):
            taken.append(name)
            yield case(lambda: torch.tensor([0.0, 2.0, 4.0]), op=name)

    found = measure_cases(
        cases(), kernel="k", commit=None, device=CPU, rounds=1, wanted=lambda c: c.op == "a"
    )
    first = next(found)
    assert taken == ["a"]
    assert {row.way for row in first.rows} == {"cold", "warm"}
    assert [(each.label, each.rows) for each in found] == [("b 3 float32", ())]
    assert taken == ["a", "b"]


class CountingTimer:
    """Takes the next of the given times for each measurement, and writes down who came."""

    ways = ("warm",)

    def __init__(self, *times: float) -> None:
        self.times, self.calls = list(times), []

    def measure(self, call, way, repeats: int) -> float:
        self.calls.append((call, repeats))
        return self.times.pop(0) if self.times else 1000.0


def test_all_take_turns_in_changing_order() -> None:
    timer = CountingTimer()
    calls = {name: name for name in "abcd"}
    times = time_in_turns(timer, calls, "warm", rounds=5)
    assert {len(rounds) for rounds in times.values()} == {5}
    turns = [call for call, _ in timer.calls[8:]]
    rounds = [turns[at : at + 4] for at in range(0, len(turns), 4)]
    assert len(rounds) == 6  # one warms up
    assert all(sorted(turn) == list("abcd") for turn in rounds)
    assert len({tuple(turn) for turn in rounds}) > 1


def test_long_calls_are_repeated_less() -> None:
    timer = CountingTimer(1e9, 10.0, 1e9, 1e6)  # the first time of each is not representative
    time_in_turns(timer, {"short": "short", "long": "long"}, "warm", rounds=1)
    repeats = dict(timer.calls[4:])
    assert repeats == {"short": 20, "long": 3}


def test_a_short_call_in_a_loop_is_repeated_until_its_beginning_does_not_count() -> None:
    timer = CountingTimer(1e9, 10.0, 1e9, 100.0, 1e9, 1e6)
    calls = {"short": "short", "middle": "middle", "long": "long"}
    time_in_turns(timer, calls, "loop", rounds=1)
    assert dict(timer.calls[6:]) == {"short": 500, "middle": 100, "long": 3}


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    # One slow round of ours would pull a ratio of means.
    assert median_ratio([1.0, 1.0, 100.0], [2.0, 2.0, 2.0]) == 2.0


def test_the_host_timer_overwrites_the_caches_only_when_cold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timer = HostTimer()
    timer._flushed.zero_()
    assert timer.measure(lambda: None, "warm", 3) >= 0
    assert not timer._flushed.any()
    timer.measure(lambda: None, "cold", 1)
    assert timer._flushed.all()


def test_the_ceiling_is_the_longer_of_bytes_and_operations() -> None:
    ceiling = Ceiling(bytes_per_second=1e9, flops_per_second={"float32": 1e12})
    assert ceiling.least_us(case(None, moved_bytes=2000)) == pytest.approx(2.0)
    assert ceiling.least_us(case(None, moved_bytes=2000, flops=5_000_000)) == pytest.approx(5.0)
    assert ceiling.least_us(case(None, flops=5, dtype="float16")) == 0


def test_products_are_measured_once_for_each_dtype() -> None:
    timer = CountingTimer(*[100.0] * 10)
    known = measure_products(
        Ceiling(bytes_per_second=1e9, flops_per_second={}), "float32", timer, CPU
    )
    assert known.flops_per_second == {"float32": pytest.approx(2 * 512**3 / 100e-6)}
    before = len(timer.calls)
    assert measure_products(known, "float32", timer, CPU) is known
    assert len(timer.calls) == before
