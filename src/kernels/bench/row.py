"""One measured figure with its peers, as it is in a benchmark's JSON: ``{"meta": …, "rows": […]}``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from kernel_spec.document import Reader, join
from kernel_spec.errors import DocumentError
from kernels.bench.timing import Way

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
        max_error: the largest |found - expected| / (1 + |expected|); null in JSON where infinite.
        tolerance: the largest that counts as right; likewise.
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
    def repository(self) -> str:
        """The kernel that was measured, ``owner/name``: what stands before the last dot of ``kernel``."""
        return self.kernel.rpartition(".")[0]

    @property
    def op(self) -> str:
        """What was called of it."""
        return self.kernel.rpartition(".")[2]

    @property
    def label(self) -> str:
        """Its case in one line, as :attr:`kernels.bench.case.Case.label` spells it."""
        return f"{self.op} {'x'.join(map(str, self.shape))} {self.dtype}"

    @property
    def best_peer(self) -> str | None:
        """The peer that comes off best, round by round; by its median where no ratio was written."""
        by = self.ratios or self.peers
        return min(by, key=by.__getitem__, default=None)


def format_document(meta: Mapping[str, Any], rows: Iterable[Row]) -> str:
    """Write a document with one row to a line, figures cut to four digits."""
    lines = ",\n  ".join(json.dumps(_rounded(asdict(row))) for row in rows)
    return f'{{"meta": {json.dumps(_rounded(dict(meta)), indent=1)},\n "rows": [\n  {lines}\n]}}\n'


def parse_document(text: str, source: Path | str) -> tuple[dict[str, Any], list[Row]]:
    """Read a document; keys that a later version may have added are passed over.

    Raises:
        DocumentError: it is no benchmark's JSON; with every fault.
    """
    reader = Reader()
    document = reader.load(text.encode("utf-8"))
    meta: dict[str, Any] = {}
    rows: list[Row | None] = []
    if not reader.faults and reader.check_type(document, dict, ""):
        meta = reader.take(document, "meta", dict, "", required=True) or {}
        entries = reader.take(document, "rows", list, "", required=True) or []
        rows = [_read_row(reader, entry, f"rows[{at}]") for at, entry in enumerate(entries)]
    if reader.faults:
        raise DocumentError(
            f"{source}: expected a benchmark's JSON, as kernels benchmark --output writes it",
            tuple(reader.faults),
        )
    return meta, [row for row in rows if row is not None]


def merge_rows(old: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Return all rows, a new one in the place of an old one of the same key."""
    merged = {row.key: row for row in old}
    merged.update((row.key, row) for row in new)
    return list(merged.values())


def _read_row(reader: Reader, entry: Any, where: str) -> Row | None:
    before = len(reader.faults)
    if not reader.check_type(entry, dict, where):
        return None
    for name in _REQUIRED:
        if name not in entry:
            reader.add("missing-key", join(where, name), "is required")
    found = {
        name: read(reader, entry[name], join(where, name))
        for name, read in _READ.items()
        if name in entry
    }
    return Row(**found) if len(reader.faults) == before else None


def _read_text(reader: Reader, value: Any, where: str) -> str:
    return value if reader.check_type(value, str, where) else ""


def _read_optional_text(reader: Reader, value: Any, where: str) -> str | None:
    return None if value is None else _read_text(reader, value, where)


def _read_way(reader: Reader, value: Any, where: str) -> str:
    ways = get_args(Way)
    if value not in ways:
        reader.add("bad-value", where, f"expected {' or '.join(ways)}, found {value!r}")
    return str(value)


def _read_flag(reader: Reader, value: Any, where: str) -> bool:
    return reader.check_type(value, bool, where) and bool(value)


def _read_number(reader: Reader, value: Any, where: str) -> float:
    if type(value) is not int and not reader.check_type(value, float, where):
        return 0.0
    if not 0 <= value <= sys.float_info.max:
        reader.add("bad-value", where, f"expected zero or more, and finite, found {value}")
        return 0.0
    return float(value)


def _read_number_or_infinity(reader: Reader, value: Any, where: str) -> float:
    return math.inf if value is None else _read_number(reader, value, where)


def _read_list(
    read: Callable[[Reader, Any, str], Any], count: int | None = None
) -> Callable[[Reader, Any, str], Any]:
    def read_list(reader: Reader, value: Any, where: str) -> tuple[Any, ...]:
        if not reader.check_type(value, list, where):
            return ()
        if count is not None and len(value) != count:
            reader.add("bad-value", where, f"expected {count} values, found {len(value)}")
        return tuple(read(reader, each, f"{where}[{at}]") for at, each in enumerate(value))

    return read_list


def _read_size(reader: Reader, value: Any, where: str) -> int:
    return value if reader.check_type(value, int, where) else 0


def _read_numbers(reader: Reader, value: Any, where: str) -> dict[str, float]:
    if not reader.check_type(value, dict, where):
        return {}
    return {name: _read_number(reader, each, join(where, name)) for name, each in value.items()}


_REQUIRED = ("kernel", "shape", "dtype", "flush", "way", "ours_us")
_READ: Mapping[str, Callable[[Reader, Any, str], Any]] = {
    "kernel": _read_text,
    "shape": _read_list(_read_size),
    "dtype": _read_text,
    "flush": _read_flag,
    "way": _read_way,
    "ours_us": _read_number,
    "spread_us": _read_list(_read_number, 2),
    "peers": _read_numbers,
    "ratios": _read_numbers,
    "references": _read_numbers,
    "gb_per_s": _read_number,
    "tflops": _read_number,
    "fraction_of_ceiling": _read_number,
    # JSON has no infinity.
    "max_error": _read_number_or_infinity,
    "tolerance": _read_number_or_infinity,
    "wrong": _read_list(_read_text),
    "commit": _read_optional_text,
}


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
