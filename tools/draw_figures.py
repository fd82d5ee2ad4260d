"""Draws the README's picture, ``docs/results/figures.svg``, from what was measured: ``make docs``."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
TARGET = RESULTS / "figures.svg"
OURS, PUBLISHED = "ours", "published 0.17.2"

# Narrow enough for a telephone to show its letters, so labels stand above their bars.
WIDTH, LEFT, BAR, ROW = 440, 8, 300, 50
LEGEND = (
    "Green: ours. Grey: the peer. Shorter is better.",
    "Each pair has its own scale. Means are geometric,",
    "of calls timed on the device, cold and warm.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One comparison: less is better.

    Attributes:
        label: what was measured.
        ours: our figure.
        peer: that of the peer, in the same unit and of the same run.
        ours_text: our figure as it is shown.
        peer_text: that of the peer as it is shown.
    """

    label: str
    ours: float
    peer: float
    ours_text: str
    peer_text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Comparisons with one peer, in one file."""

    title: str
    rows: tuple[Row, ...]


def read_groups() -> Iterator[Group]:
    """Read the figures of the four files that the picture is of."""
    loads = json.loads((RESULTS / "load.json").read_text("utf-8"))["clients"]
    small = json.loads((RESULTS / "main-job.json").read_text("utf-8"))["load"]
    yield Group(
        title=f"Loading, beside the {PUBLISHED.replace('published', 'published client')}",
        rows=(*_load_rows(loads), *_small_load_rows(small)),
    )
    builds = json.loads((RESULTS / "build.json").read_text("utf-8"))["figures"]
    yield Group(
        title="Building, beside torch.utils.cpp_extension",
        rows=tuple(_build_rows(builds)),
    )
    measured = json.loads((ROOT / "docs/benchmarks/h200.json").read_text("utf-8"))["rows"]
    yield Group(
        title="Kernels on an H200, beside the best peer",
        rows=tuple(_kernel_rows(measured)),
    )


def _load_rows(clients: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    shown = (
        ("from kernels import get_kernel", "named_ms", 1e-3),
        ("get_kernel again", "repeat_us", 1e-6),
        ("first call of a process, warm cache", "warm_process_ms", 1e-3),
        ("first call, empty cache, 60 files", "cold_ms", 1e-3),
        ("12 processes at once, empty cache", "fleet_s", 1.0),
    )
    for label, key, unit in shown:
        ours, peer = clients[OURS][key] * unit, clients[PUBLISHED][key] * unit
        yield _row(label, ours, peer, format_seconds)
    ours, peer = (clients[name]["installed_mb"] for name in (OURS, PUBLISHED))
    yield _row("installed, without torch", ours, peer, lambda value: f"{value:.0f} MB")


def _small_load_rows(clients: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
    ours, peer = (clients[name]["cold_ms"] * 1e-3 for name in (OURS, PUBLISHED))
    yield _row("first call, empty cache, a small kernel", ours, peer, format_seconds)


def _build_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    if not figures.get("peer"):
        return  # it takes minutes, and may be left out
    ours = figures["ours"]["cpu_seconds"]
    what = f"activation, {len(figures['archs'])} CUDA archs, CPU time"
    yield _row(what, ours, figures["peer"]["cpu_seconds"], format_seconds)
    if figures.get("lean_peer"):
        # What is saved is saved by files for nvcc without torch's headers, whoever compiles them.
        lean = figures["lean_peer"]["cpu_seconds"]
        yield _row("the peer with our files, not in its usual form", ours, lean, format_seconds)


def _kernel_rows(measured: list[Mapping[str, Any]]) -> Iterator[Row]:
    """Compare on the device alone: where the host decides, in loops, a slow host would flatter us."""
    ratios: dict[str, list[float]] = {}
    for row in measured:
        if row["way"] != "loop" and row["ratios"]:
            name = row["kernel"].rpartition("/")[2].partition(".")[0]
            ratios.setdefault(name, []).append(min(row["ratios"].values()))
    for name, found in ratios.items():
        mean = math.exp(math.fsum(map(math.log, found)) / len(found))
        yield Row(
            label=f"{name}: {len(found)} calls, {min(found):.2f}x to {max(found):.2f}x as fast",
            ours=1 / mean,
            peer=1.0,
            ours_text=f"mean {mean:.2f}x",
            peer_text="1",
        )


def _row(label: str, ours: float, peer: float, show: Any) -> Row:
    return Row(label=label, ours=ours, peer=peer, ours_text=show(ours), peer_text=show(peer))


def format_seconds(seconds: float) -> str:
    """Write a duration with two or three digits that count and the unit that fits."""
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
    unit, name = next((each for each in units if seconds >= each[0]), units[-1])
    value = seconds / unit
    return f"{value:.0f} {name}" if value >= 10 else f"{value:.1f} {name}"


STYLE = """
text { font-family: system-ui, sans-serif; font-size: 13px; fill: #1f2328 } .title { font-size: 14px; font-weight: 600 }
.ours { fill: #1a7f64 } .peer { fill: #b6bec8 } .small { font-size: 12px; fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .ours { fill: #3fb68b } .peer { fill: #4d5661 } .small { fill: #9198a1 }
}
"""


def draw(groups: list[Group]) -> str:
    """Draw the groups below each other; in each row the longer bar has the full width."""
    parts, y = [], 8
    for group in groups:
        if not group.rows:
            continue
        y += 22
        parts.append(f'<text class="title" x="8" y="{y}">{escape(group.title)}</text>')
        y += 10
        for row in group.rows:
            parts.append(_draw_row(row, y))
            y += ROW
    for line in LEGEND:
        y += 16
        parts.append(f'<text class="small" x="{LEFT}" y="{y}">{escape(line)}</text>')
    height = y + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img">\n<style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _draw_row(row: Row, y: int) -> str:
    longest = max(row.ours, row.peer)
    lines = [f'<text x="{LEFT}" y="{y + 14}">{escape(row.label)}</text>']
    for kind, value, text, top in (
        ("ours", row.ours, row.ours_text, y + 20),
        ("peer", row.peer, row.peer_text, y + 32),
    ):
        width = max(1.0, BAR * value / longest)
        lines.append(
            f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{width:.1f}" height="10" rx="2"/>'
            f'<text class="small" x="{LEFT + width + 6:.1f}" y="{top + 9}">{escape(text)}</text>'
        )
    return "\n".join(lines)


def write() -> None:
    """Draw the figures that there are now."""
    TARGET.write_text(draw(list(read_groups())), encoding="utf-8")


def main() -> int:
    """Write the picture; with ``--check`` say whether it is of the figures that there are now."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        write()
        return 0
    if TARGET.exists() and TARGET.read_text("utf-8") == draw(list(read_groups())):
        return 0
    print(f"{TARGET.relative_to(ROOT)} is of older figures: run make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
