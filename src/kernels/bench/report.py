"""Shows rows: as a table for a terminal or a page, and as plots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from kernels.bench.row import Row
from kernels.store import write_whole

PLOT_SUFFIXES = (".png", ".svg")
_HEADINGS = ("op", "shape", "dtype", "way", "ours µs", "its rounds", "best peer", "peer / ours", "GB/s", "of ceiling", "error")  # fmt: skip
# What a narrow terminal can do without, the least needed first.
_SPARED = ("its rounds", "GB/s", "of ceiling", "error", "dtype")
# Each peer has a colour and a form of its own, so that none hides behind another; ours is a hollow diamond around them.
_OURS = "#0b6e4f"
_COLOURS = {"eager": "#8a94a0", "torch": "#3f78e0", "compile": "#d98a00", "cuBLAS": "#b5179e"}
_FORMS = "osv^<>Ph"


def format_table(rows: Iterable[Row]) -> str:
    """Return a Markdown table, aligned so that it also reads well in a terminal."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    ruler = tuple("-" * width for width in _widths(cells))
    lines = _pad([cells[0], ruler, *cells[1:]])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fit_table(rows: Sequence[Row], width: int) -> tuple[str, list[str]]:
    """Return the table as wide as a terminal, and the columns that it has no room for.

    A Markdown table where that fits, else columns alone, of which those go first that are needed least; a
    result that is wrong stays marked. The last ones stay, whatever the width.
    """
    whole = format_table(rows)
    if len(whole.partition("\n")[0]) <= width:
        return whole, []
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    wrong = any(row.wrong for row in rows)
    left_out: list[str] = []
    for name in [name for name in _SPARED if not (wrong and name == "error")]:
        if sum(_widths(cells)) + 2 * (len(cells[0]) - 1) <= width:
            break
        at = cells[0].index(name)
        cells = [line[:at] + line[at + 1 :] for line in cells]
        left_out.append(name)
    return "\n".join("  ".join(line).rstrip() for line in _pad(cells)), left_out


def _widths(cells: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]


def _pad(cells: Sequence[tuple[str, ...]]) -> list[list[str]]:
    widths = _widths(cells)
    return [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in cells]


def _cells(row: Row) -> tuple[str, ...]:
    best = row.best_peer
    work = f"{row.tflops:.3g} TFLOP/s" if row.tflops else f"{row.gb_per_s:.0f}"
    return (
        row.op,
        " x ".join(map(str, row.shape)),
        row.dtype,
        row.way,
        _spell_us(row.ours_us),
        " to ".join(map(_spell_us, row.spread_us)),
        f"{best} {_spell_us(row.peers[best])}" if best else "-",
        f"{row.ratios[best]:.2f}" if best and best in row.ratios else "-",
        work,
        f"{row.fraction_of_ceiling:.2f}",
        f"{row.max_error:.1e}" + (" WRONG" if row.wrong else ""),
    )


def _spell_us(us: float) -> str:
    return f"{us:.0f}" if us >= 1000 else f"{us:.4g}"


def can_be_drawn(row: Row) -> bool:
    """Whether a row says how close the device alone comes to its ceiling."""
    return row.way != "loop" and row.fraction_of_ceiling > 0


def draw_plots(rows: Sequence[Row], place: Path, *, title: str) -> None:
    """Draw how close each call comes to the ceiling, ours and its peers: a panel for cold, one for warm.

    Args:
        rows: of which at least one :func:`can_be_drawn`.
        place: a file that ends in .png or .svg; appears whole.
        title: above the panels.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = list(filter(can_be_drawn, rows))
    panels = [(way, [row for row in shown if row.way == way]) for way in ("cold", "warm")]
    panels = [(way, part) for way, part in panels if part]
    tallest = max((len(part) for _, part in panels), default=1)
    figure, axes = pyplot.subplots(
        1,
        max(1, len(panels)),
        # As wide as is readable on a telephone, and in a page's column.
        figsize=(5 * max(1, len(panels)), 1.6 + 0.2 * tallest),
        squeeze=False,
        layout="constrained",
    )
    peers = sorted({name for row in shown for name in row.peers})
    for axis, (way, part) in zip(axes[0], panels, strict=False):
        _draw_panel(axis, part, peers, way)
    figure.suptitle(title, fontsize=9, wrap=True)
    marks = {
        name: mark
        for axis in axes[0]
        for mark, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    # Below the panels: within one it would cover calls.
    figure.legend(
        marks.values(), marks.keys(), fontsize=8, ncols=4, loc="outside lower center", frameon=False
    )
    drawn = BytesIO()
    kind = place.suffix.removeprefix(".")
    try:
        figure.savefig(
            drawn, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
        )
    finally:
        pyplot.close(figure)
    write_whole(place, drawn.getvalue())


def _draw_panel(axis: Any, rows: Sequence[Row], peers: Sequence[str], way: str) -> None:
    axis.scatter(
        [row.fraction_of_ceiling for row in rows],
        range(len(rows)),
        label="ours",
        facecolors="none",
        edgecolors=_OURS,
        linewidths=1.6,
        marker="D",
        s=44,
        clip_on=False,
        zorder=3,
    )
    farthest = 1.0
    for number, name in enumerate(peers):
        points = [
            (row.fraction_of_ceiling * row.ours_us / us, at)
            for at, row in enumerate(rows)
            if (us := row.peers.get(name, 0.0))
        ]
        farthest = max([farthest, *(x for x, _ in points)])
        axis.scatter(
            [x for x, _ in points],
            [y for _, y in points],
            label=name,
            color=_COLOURS.get(name),
            marker=_FORMS[number % len(_FORMS)],
            s=14,
            zorder=2,
        )
    axis.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.axvline(1.0, color="#c03030", linewidth=0.8, label="ceiling")
    axis.set_xlim(0, 1.05 * max([farthest, *(row.fraction_of_ceiling for row in rows)]))
    axis.tick_params(axis="x", labelsize=8)
    axis.set_xlabel(
        f"fraction of the ceiling, {way} cache; more is faster", fontsize=8, loc="right"
    )
    axis.grid(alpha=0.3)
