"""Fills the tables of figures in cards and pages, and the page of all, from ``docs/benchmarks/h200.json``: ``make docs``.

A table stands between two comments, of which the first says what it shows::

    <!-- figures kernel=activation op=gelu,silu shape=16384x8192 dtype=float16 way=cold
         columns=op,ours,best,peer,ratio -->
    <!-- end of figures -->

``op``, ``shape``, ``dtype`` and ``way`` choose rows (all, if left out), ``below`` those with a smaller
ratio, and ``group`` makes one row of all that are alike in its columns. A column is one of
:data:`COLUMNS`, a peer or reference by its name, ``ratio:`` and such a name, or ``wanted:`` and a goal.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.bench.pages import format_page
from kernels.bench.row import Row, parse_document

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "docs/benchmarks/h200.json"
PATTERNS = ("kernels-community/*/CARD.md", "docs/kernels/*.md")
FIRST, LAST = "<!-- figures ", "<!-- end of figures -->"
BLOCK = re.compile(rf"^({FIRST}(.*?)-->\n)(.*?)^{LAST}$", re.MULTILINE | re.DOTALL)
KEYS = {"kernel", "op", "shape", "dtype", "way", "below", "group", "columns"}


def shape(row: Row) -> str:
    """Return the shape as a marker names it."""
    return "x".join(map(str, row.shape))


def peer(row: Row) -> str:
    """Return the peer that comes off best, round by round."""
    if not row.ratios:
        raise ValueError(f"{row.kernel} has no peer at {shape(row)}")
    return min(row.ratios, key=row.ratios.__getitem__)


def ratio(row: Row) -> float:
    """Return that peer's time divided by ours: above 1 we are faster."""
    return row.ratios[peer(row)]


CHOICES: Mapping[str, Callable[[Row], str]] = {
    "op": lambda row: row.op,
    "shape": shape,
    "dtype": lambda row: row.dtype,
    "way": lambda row: row.way,
}

# The heading, what is in it, and how a number is written.
COLUMNS: Mapping[str, tuple[str, Callable[[Row], str | float], str]] = {
    "op": ("op", lambda row: f"`{row.op}`", ""),
    "shape": ("shape", lambda row: " x ".join(map(str, row.shape)), ""),
    "rows": ("rows", lambda row: str(row.shape[0]), ""),
    "dtype": ("dtype", lambda row: row.dtype, ""),
    "way": ("way", lambda row: row.way, ""),
    "ours": ("ours, µs", lambda row: row.ours_us, "#.4g"),
    "spread": ("its rounds", lambda row: " to ".join(map(_microseconds, row.spread_us)), ""),
    "peer": ("best peer", peer, ""),
    "best": ("its µs", lambda row: row.peers[peer(row)], "#.4g"),
    "ratio": ("best peer / ours", ratio, ".3f"),
    "ceiling": ("of ceiling", lambda row: row.fraction_of_ceiling, ".3f"),
    "tflops": ("TFLOP/s", lambda row: row.tflops, ".0f"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What one marker asks for.

    Attributes:
        kernel: its name, without the owner.
        chosen: for some of :data:`CHOICES`, the values that are shown.
        columns: their names, in the order of the table.
        group: columns that rows share to be one row of the table; empty: every row is one.
        below: the ratio that a row must be below; None: any.
    """

    kernel: str
    chosen: Mapping[str, tuple[str, ...]]
    columns: tuple[str, ...]
    group: tuple[str, ...] = ()
    below: float | None = None


def parse_query(text: str) -> Query:
    """Read what a marker says.

    Raises:
        ValueError: a key is unknown, missing or twice there.
    """
    pairs = [word.partition("=")[::2] for word in shlex.split(text)]
    found = dict(pairs)
    if len(found) < len(pairs) or not {"kernel", "columns"} <= set(found) <= KEYS:
        raise ValueError(f"expected kernel, columns, and once each of {sorted(KEYS)}")
    split = {key: tuple(value.split(",")) for key, value in found.items()}
    return Query(
        kernel=found["kernel"],
        chosen={key: split[key] for key in CHOICES if key in split},
        columns=split["columns"],
        group=split.get("group", ()),
        below=float(found["below"]) if "below" in found else None,
    )


def find_rows(query: Query, rows: list[Row]) -> list[Row]:
    """Return the rows that a query asks for.

    Raises:
        ValueError: a value that it names is in no row: a table never shrinks unseen.
    """
    found = [row for row in rows if row.kernel.rpartition("/")[2].split(".")[0] == query.kernel]
    if not found:
        raise ValueError(f"no row of kernel={query.kernel}")
    for key, values in query.chosen.items():
        found = [row for row in found if CHOICES[key](row) in values]
        if missing := sorted(set(values) - {CHOICES[key](row) for row in found}):
            raise ValueError(f"no row of {key}={','.join(missing)}")
    return [row for row in found if query.below is None or ratio(row) < query.below]


def _column(name: str) -> tuple[str, Callable[[Row], str | float], str]:
    """Return a column's heading, content and form; a peer's or a reference's by its name."""
    if name in COLUMNS:
        return COLUMNS[name]
    kind, _, other = name.rpartition(":")
    match kind:
        case "wanted":
            return "wanted", lambda _: other, ""
        case "ratio":
            return f"{other} / ours", lambda row: _ratio_to(row, other), ".3f"
        case _:
            return f"{name}, µs", lambda row: {**row.references, **row.peers}[name], "#.4g"


def _ratio_to(row: Row, other: str) -> float:
    """Return a peer's time, or that of a reference, divided by ours."""
    if other in row.references:
        return row.references[other] / row.ours_us
    return row.ratios[other]


def _cell(name: str, rows: list[Row]) -> str:
    """Write what rows have in a column: each text once, numbers as the range that they span."""
    _, value, form = _column(name)
    values = [value(row) for row in rows]
    numbers = [each for each in values if isinstance(each, float)]
    if not numbers:
        return ", ".join(dict.fromkeys(map(str, values)))
    least, most = (_number(each, form) for each in (min(numbers), max(numbers)))
    return least if least == most else f"{least} to {most}"


def _number(value: float, form: str) -> str:
    return _microseconds(value) if form == "#.4g" else format(value, form)


def _microseconds(value: float) -> str:
    """Write a time with the four digits that the file has."""
    return f"{value:.0f}" if value >= 1000 else f"{value:#.4g}"


def format_table(query: Query, rows: list[Row], meta: Mapping[str, Any]) -> str:
    """Write the table that a query asks for, and below it where the figures come from.

    Raises:
        ValueError: it asks for what is not in the rows.
    """
    found = find_rows(query, rows)
    if not found:
        return f"\nNo row is below {query.below}.\n\n"
    groups: dict[tuple[str, ...], list[Row]] = {}
    try:
        for at, row in enumerate(found):
            key = tuple(_cell(name, [row]) for name in query.group) or (str(at),)
            groups.setdefault(key, []).append(row)
        cells = [[_cell(name, group) for name in query.columns] for group in groups.values()]
    except KeyError as err:
        raise ValueError(f"no row, or not every row, has a column {err}") from err
    heads = [_column(name)[0] for name in query.columns]
    rules = ["--:" if _column(name)[2] else "---" for name in query.columns]
    lines = [f"| {' | '.join(each)} |\n" for each in (heads, rules, *cells)]
    about = meta[found[0].repository]
    commits = ", ".join(dict.fromkeys(row.commit or "?" for row in found))
    return f"\n{''.join(lines)}\n*{about['device']}, torch {about['torch']}, commit {commits}.*\n\n"


def fill(text: str, rows: list[Row], meta: Mapping[str, Any]) -> str:
    """Fill in every table of a page.

    Raises:
        ValueError: with every fault of its markers.
    """
    faults: list[str] = []

    def replace(block: re.Match[str]) -> str:
        try:
            table = format_table(parse_query(block[2]), rows, meta)
        except ValueError as err:
            faults.append(f"<!-- figures {' '.join(block[2].split())} -->: {err}")
            return block[0]
        return f"{block[1]}{table}{LAST}"

    filled, count = BLOCK.subn(replace, text)
    if not count == text.count(FIRST) == text.count(LAST):
        faults.append(f"not every {FIRST}… --> has its {LAST}, each at the start of a line")
    if faults:
        raise ValueError("\n".join(faults))
    return filled


def pages() -> Iterator[Path]:
    """Find the cards and pages that hold such tables."""
    for pattern in PATTERNS:
        yield from (path for path in sorted(ROOT.glob(pattern)) if FIRST in path.read_text("utf-8"))


def main() -> int:
    """Fill in all tables; with ``--check`` say which pages show older figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    meta, rows = parse_document(SOURCE.read_text("utf-8"), SOURCE)
    faults = []
    all_rows = SOURCE.with_suffix(".md")
    for page in (*pages(), *filter(Path.exists, [all_rows])):
        name, text = page.relative_to(ROOT), page.read_text("utf-8")
        try:
            if page == all_rows:
                filled = format_page(meta, rows, SOURCE.stem, plotted=True)
            else:
                filled = fill(text, rows, meta)
        except ValueError as err:
            faults += [f"{name}: {line}" for line in str(err).splitlines()]
            continue
        if filled != text and check:
            faults.append(f"{name} shows older figures: run make docs")
        elif filled != text:
            page.write_text(filled, encoding="utf-8")
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
