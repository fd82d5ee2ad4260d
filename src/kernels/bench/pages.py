"""Writes the results of many kernels on one machine as three files: JSON, a page, and plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels.bench.report import draw_plots, format_table
from kernels.bench.row import Row, format_document
from kernels.store import write_whole


def write_pages(into: Path, meta: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write ``into.json``, ``into.md`` and, where matplotlib is installed, ``into.svg``; each whole.

    Args:
        into: the files without their suffixes.
        meta: what each kernel was measured on, by its id.
        rows: of all kernels.
    """
    ordered = sorted(rows, key=lambda row: row.repository)
    write_whole(into.with_suffix(".json"), format_document(meta, ordered).encode())
    plotted = _draw(into.with_suffix(".svg"), ordered)
    page = format_page(meta, ordered, into.name, plotted=plotted)
    write_whole(into.with_suffix(".md"), page.encode())


def format_page(meta: Mapping[str, Any], rows: Sequence[Row], name: str, *, plotted: bool) -> str:
    """Return the page: how it was measured, then a table for each kernel."""
    parts = [
        f"# Measured: {name}\n",
        "Written by `make gpu` from what it measured; nothing here is typed by hand. Times are medians "
        "over rounds in which all calls took turns, in microseconds; *peer / ours* is the median of the "
        "rounds' ratios for the fastest peer, so above 1 the kernel is faster. *cold*: the caches "
        "were overwritten before each call; *warm*: they were not; both are times on the device "
        "alone. *loop*: calls without a gap, so the slower of host and device. *of ceiling*: the "
        "time that a copy (or a large matrix product) would need, measured in the same run, divided "
        "by ours. *error*: the largest |found - expected| / (1 + |expected|).\n",
    ]
    if plotted:
        parts.append(
            f"![How close the calls come to the ceiling]({name}.svg)\n\n"
            "The picture has one call of each op and dtype: of those with a cold cache the one that comes "
            "closest to the ceiling, which is a large one. Small calls are far below it. The tables have every "
            "measured call, those in which a peer is faster included: *peer / ours* is below 1 there.\n"
        )
    for kernel in dict.fromkeys(row.repository for row in rows):
        own = [row for row in rows if row.repository == kernel]
        parts.append(
            f"## {kernel}\n\n{_describe(meta.get(kernel, {}), own)}\n\n{format_table(own)}\n"
        )
    return "\n".join(parts)


def _describe(meta: Mapping[str, Any], rows: Iterable[Row]) -> str:
    commits = sorted({row.commit or "unknown" for row in rows})
    words = [str(meta.get("device", "an unknown device"))]
    words += [
        f"{key} {meta[key]}" for key in ("driver", "torch", "triton", "python") if key in meta
    ]
    if "ceiling_gb_per_s" in meta:
        words.append(f"a copy moved {meta['ceiling_gb_per_s']:.4g} GB/s")
    for dtype, peak in meta.get("ceiling_tflops", {}).items():
        words.append(f"a {dtype} product did {peak:.4g} TFLOP/s")
    return f"{', '.join(words)}. Commit: {', '.join(commits)}."


def _draw(place: Path, rows: Sequence[Row]) -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    title = "Of each op and dtype, the call that comes closest to the device's ceiling"
    draw_plots(_plottable(rows), place, title=title)
    return True


def _plottable(rows: Sequence[Row]) -> list[Row]:
    """What a reader can take in: of each op and dtype the call that comes closest to the ceiling when cold."""
    closest: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.kernel, row.dtype)
        if row.way == "cold" and (
            key not in closest or row.fraction_of_ceiling > closest[key].fraction_of_ceiling
        ):
            closest[key] = row
    return list(closest.values())
