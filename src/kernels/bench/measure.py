"""The story of a benchmark: check a case, time it with its peers in turns, and make its rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kernels.bench.case import Call, Case, largest_error, poison
from kernels.bench.ceiling import Ceiling, measure_copy, measure_products
from kernels.bench.row import Row
from kernels.bench.timing import Timer, Way, make_timer, median_ratio, time_in_turns
from kernels.errors import BenchmarkError

PEER_TOLERANCES = 10
ROUNDS = 9


class Measured(NamedTuple):
    """What came of a case.

    Attributes:
        label: the case's :attr:`~kernels.bench.case.Case.label`.
        ceiling: what the device reaches, as far as it is measured by then.
        rows: one for each way of timing; none where the case is not wanted.
    """

    label: str
    ceiling: Ceiling
    rows: tuple[Row, ...]


def measure_cases(
    cases: Iterable[Case],
    *,
    kernel: str,
    commit: str | None,
    device: Any,
    ways: Collection[Way] | None = None,
    rounds: int = ROUNDS,
    wanted: Callable[[Case], bool] = lambda _: True,
) -> Iterator[Measured]:
    """Yield what comes of each case as soon as it is measured.

    Args:
        cases: what to time; taken one by one, so that the tensors of one are gone before the next.
        kernel: ``owner/name``, or a path.
        commit: the commit of the kernel, if it is known.
        device: a ``torch.device``.
        ways: how to time; all that the device's timer has, unless given.
        rounds: how often the calls take turns.
        wanted: whether a case is timed.

    Raises:
        BenchmarkError: a call of a case failed, or returned something else than a tensor.
    """
    timer = make_timer(device)
    chosen = [way for way in timer.ways if ways is None or way in ways]
    ceiling = measure_copy(timer, device)
    for case in cases:
        rows: Iterable[Row] = ()
        if wanted(case):
            if case.flops:
                ceiling = measure_products(ceiling, case.dtype, timer, device)
            rows = _measure(
                case, timer, chosen, ceiling, rounds=rounds, kernel=kernel, commit=commit
            )
        yield Measured(case.label, ceiling, tuple(rows))
        del case


def _measure(
    case: Case,
    timer: Timer,
    ways: Iterable[Way],
    ceiling: Ceiling,
    *,
    rounds: int,
    kernel: str,
    commit: str | None,
) -> Iterator[Row]:
    errors = _check(case)
    calls = {"ours": case.ours, **_tagged("peer", case.peers), **_tagged("other", case.references)}
    for way in ways:
        try:
            times = time_in_turns(timer, calls, way, rounds=rounds)
        except BenchmarkError as err:
            raise BenchmarkError(case.label, f"while it was timed ({way}), {err}") from err
        ours = times["ours"]
        middle = statistics.median(ours)
        least = ceiling.least_us(case)
        yield Row(
            kernel=f"{kernel}.{case.op}",
            shape=case.shape,
            dtype=case.dtype,
            flush=way == "cold",
            way=way,
            ours_us=middle,
            spread_us=(min(ours), max(ours)),
            peers={name: statistics.median(times[f"peer {name}"]) for name in case.peers},
            ratios={name: median_ratio(ours, times[f"peer {name}"]) for name in case.peers},
            references={
                name: statistics.median(times[f"other {name}"]) for name in case.references
            },
            gb_per_s=case.moved_bytes / middle / 1e3,
            tflops=case.flops / middle / 1e6,
            fraction_of_ceiling=least / middle,
            max_error=errors["ours"],
            tolerance=case.tolerance,
            wrong=tuple(_wrong(case, errors)),
            commit=commit,
        )


def _check(case: Case) -> dict[str, float]:
    if case.out is not None:
        poison(case.out)
    expected = _run(case, "what is expected", case.expected)
    returned = _run(case, "ours", case.ours)
    errors = {"ours": _compare(case, "ours", returned if case.out is None else case.out, expected)}
    for name, call in case.peers.items():
        errors[name] = _compare(case, name, _run(case, name, call), expected)
    for name, call in case.references.items():
        _run(case, name, call)
    return errors


def _run(case: Case, name: str, call: Call) -> Any:
    try:
        return call()
    except Exception as err:
        raise BenchmarkError(case.label, f"{name}: {type(err).__name__}: {err}") from err


def _compare(case: Case, name: str, found: Any, expected: Any) -> float:
    import torch

    for who, value in ((name, found), ("what is expected", expected)):
        if not isinstance(value, torch.Tensor):
            raise BenchmarkError(
                case.label, f"{who}: expected a tensor, found {type(value).__name__}"
            )
    if found.device != expected.device:
        raise BenchmarkError(
            case.label, f"{name}: is on {found.device}, what is expected is on {expected.device}"
        )
    return largest_error(found, expected)


def _wrong(case: Case, errors: dict[str, float]) -> Iterator[str]:
    for name, error in errors.items():
        allowed = case.tolerance * (1 if name == "ours" else PEER_TOLERANCES)
        if not error <= allowed:
            yield f"{name}: error {error:.2g}, allowed {allowed:.2g}"


def _tagged(tag: str, calls: Mapping[str, Call]) -> dict[str, Call]:
    return {f"{tag} {name}": call for name, call in calls.items()}
