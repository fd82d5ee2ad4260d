"""One measured figure with its peers, as it is in a benchmark's JSON: ``{"meta": …, "rows": […]}``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_spec.errors import FormatError

DIGITS = 4  # significant ones; the spread is larger than what is cut off


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A case, timed in one way.

    Attributes:
        kernel: ``owner/name.op``.
        shape: of the main input.
        dtype: of the main input.
        flush: whether the caches were overwritten before each call.
        way: ``cold``, ``warm`` or ``loop``: see :mod:`kernels.bench.timing`.
        ours_us: the median of the rounds, in microseconds.
        spread_us: the fastest and the slowest round.
        peers: other ways to the same result, in microseconds.
        ratios: the median over the rounds of each peer's time divided by ours.
        references: other functions or goals, in microseconds.
        gb_per_s: bytes that must be moved per second, in 10^9.
        tflops: operations that must be done per second, in 10^12.
        fraction_of_ceiling: the least time that the device allows, divided by ours.
        max_error: the largest |found - expected| / (1 + |expected|).
        tolerance: the largest that counts as right.
        wrong: what is not right, a peer's result included; empty if all is.
        commit: of the kernel.
    """

    kernel: str
    shape: tuple[int, ...]
    dtype: str
    flush: bool
    way: str
    ours_us: float
    peers: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    references: Mapping[str, float] = field(default_factory=dict)
    fraction_of_ceiling: float = 0.0
    max_error: float = 0.0
    commit: str | None = None
    spread_us: tuple[float, float] = (0.0, 0.0)
    gb_per_s: float = 0.0
    tflops: float = 0.0
    tolerance: float = 0.0
    wrong: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What a later measurement of the same thing replaces."""
        return (self.kernel, self.shape, self.dtype, self.way)

    @property
    def best_peer(self) -> str | None:
        """The fastest peer."""
        return min(self.peers, key=self.peers.__getitem__, default=None)


def format_document(meta: Mapping[str, Any], rows: Iterable[Row]) -> str:
    """Write a document with one row to a line, figures cut to four digits."""
    lines = ",\n  ".join(json.dumps(_rounded(asdict(row))) for row in rows)
    return f'{{"meta": {json.dumps(_rounded(dict(meta)), indent=1)},\n "rows": [\n  {lines}\n]}}\n'


def parse_document(text: str, source: Path | str) -> tuple[dict[str, Any], list[Row]]:
    """Read a document.

    Raises:
        FormatError: it is no benchmark's JSON.
    """
    try:
        document = json.loads(text)
        rows = [_read_row(entry) for entry in document["rows"]]
        return dict(document["meta"]), rows
    except (ValueError, TypeError, KeyError) as err:
        raise FormatError(
            f"{source}: expected a benchmark's JSON with 'meta' and 'rows', found another ({err!r}). "
            "Write it again with kernels benchmark --json."
        ) from err


def merge_rows(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return all rows, a new one in the place of an old one of the same key."""
    merged = {row.key: row for row in old}
    merged.update((row.key, row) for row in new)
    return list(merged.values())


def _read_row(entry: dict[str, Any]) -> Row:
    known = {name: entry[name] for name in Row.__slots__ if name in entry}
    for name in ("shape", "spread_us", "wrong"):
        if name in known:
            known[name] = tuple(known[name])
    return Row(**known)


def _rounded(value: Any) -> Any:
    match value:
        case float():
            if not math.isfinite(value):
                return None
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {key: _rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [_rounded(item) for item in value]
        case _:
            return value
