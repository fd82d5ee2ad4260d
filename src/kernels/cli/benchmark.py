"""``kernels benchmark``: how fast and how right a kernel is on this machine, beside its peers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernel_spec.command import say_error, say_note, say_warning
from kernel_spec.errors import KernelError
from kernels.errors import BenchmarkError

if TYPE_CHECKING:
    from kernels.bench.measure import Measured
    from kernels.bench.row import Row
    from kernels.bench.script import Benchmarked
    from kernels.bench.timing import Way

WAYS = ("cold", "warm", "loop")
_WAY = "Time in this way alone; may be given again [default: all that the device has]."
_ROUNDS = "How often the calls of a case take turns."


def _ignore(ctx: click.Context, parameter: click.Parameter, value: int | None) -> None:
    del ctx
    if value is not None:
        say_note(
            f"{parameter.opts[0]}: each case finds out itself how often it has to run (--rounds)"
        )


def _older(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take the options of the published client, and what they mean here."""
    for option in (
        click.option("--branch", metavar="NAME", help="As KERNEL@NAME."),
        click.option("--version", metavar="N", help="As KERNEL@N."),
        click.option("--visual", metavar="BASE", help="As --plot BASE.svg."),
        click.option("--rasterized", is_flag=True, help="With --visual: a .png file."),
        click.option("--iterations", type=int, expose_value=False, callback=_ignore, hidden=True),
        click.option("--warmup", type=int, expose_value=False, callback=_ignore, hidden=True),
    ):
        function = option(function)
    return function


@click.command(name="benchmark")
@click.argument("kernel")
@click.option("--device", help="Such as cuda or cpu [default: the accelerator, else the CPU].")
@click.option("--only", metavar="TEXT", help="Only cases whose 'op shape dtype' contains TEXT.")
@click.option("--way", "ways", type=click.Choice(WAYS), multiple=True, help=_WAY)
@click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True, help=_ROUNDS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, and no table.")
@click.option("--output", type=click.Path(path_type=Path), help="Write the JSON there, too.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw plots: a .png or .svg file.")
@click.option("--commit", help="For a path: the commit to write down [default: the one built].")
@click.option("--trust-remote-code", is_flag=True, help="Run code of an owner who is not trusted.")
@_older
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    kernel: str,
    device: str | None,
    only: str | None,
    ways: tuple[Way, ...],
    rounds: int,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    commit: str | None,
    trust_remote_code: bool,
    branch: str | None,
    version: str | None,
    visual: str | None,
    rasterized: bool,
) -> None:
    """Time KERNEL, owner/name[@version] or a path, against its peers, and check its results.

    Each case of the kernel's benchmarks/benchmark*.py is checked against its reference, then timed in
    turns with its peers: with the caches overwritten (cold), as the last call left them (warm),
    and calls without a gap (loop). Exits with 1 where a result is wrong.
    """
    from kernels.bench.machine import describe_machine
    from kernels.bench.row import format_document
    from kernels.bench.script import open_kernel
    from kernels.store import write_whole

    kernel = _at_revision(kernel, branch, version)
    plot = _choose_plot(plot, visual, ".png" if rasterized else ".svg")
    _check_places(output, plot)
    chosen = _device(device)
    _check_ways(ways, chosen, plot)
    found = open_kernel(kernel, trust_remote_code=trust_remote_code)
    commit = found.commit if found.published else commit or found.commit
    meta: dict[str, Any] = {"kernel": found.name, **describe_machine(chosen)}
    if chosen.type == "cpu":
        meta["load"] = _look_at_load()
    rows: list[Row] = []
    labels: list[str] = []
    for label, ceiling, fresh in _measure(
        found, chosen, only=only, ways=ways, rounds=rounds, commit=commit
    ):
        labels.append(label)
        if not fresh:
            continue
        meta["ceiling_gb_per_s"] = ceiling.bytes_per_second / 1e9
        meta["ceiling_tflops"] = {d: f / 1e12 for d, f in ceiling.flops_per_second.items()}
        rows += fresh
        if output is not None:  # after each case: an interrupted run keeps what it has measured
            write_whole(output, format_document(meta, rows).encode())
        if not as_json:
            _say_progress(fresh)
    if not rows:
        raise _nothing_measured(found, only, labels)
    if as_json:
        click.echo(format_document(meta, rows), nl=False)
    else:
        _show_table(rows, meta)
    if plot is not None:
        _plot(rows, plot, meta)
    wrong = [f"{row.label}: {what}" for row in rows for what in row.wrong]
    for line in dict.fromkeys(wrong):
        say_error(f"wrong result: {line}")
    ctx.exit(1 if wrong else 0)


def _at_revision(kernel: str, branch: str | None, version: str | None) -> str:
    given = [text for text in (kernel.partition("@")[2], branch, version) if text]
    if len(given) > 1:
        raise click.UsageError(
            f"which of {' and '.join(given)}? Give one of KERNEL@REVISION, --branch and --version."
        )
    return f"{kernel.partition('@')[0]}@{given[0]}" if given else kernel


def _choose_plot(plot: Path | None, visual: str | None, suffix: str) -> Path | None:
    if visual is None:
        return plot
    if plot is not None:
        raise click.UsageError("give one of --plot and --visual.")
    return Path(visual + suffix)


def _measure(
    found: Benchmarked,
    device: Any,
    *,
    only: str | None,
    ways: tuple[Way, ...],
    rounds: int,
    commit: str | None,
) -> Iterator[Measured]:
    from kernels.bench.measure import measure_cases
    from kernels.bench.script import read_cases

    for script in found.scripts:
        measured = measure_cases(
            read_cases(script, found.module, device),
            kernel=found.name,
            commit=commit,
            device=device,
            ways=ways or None,
            rounds=rounds,
            wanted=lambda case: only is None or only in case.label,
        )
        while True:
            # What the benchmark's code prints is no part of the result.
            with redirect_stdout(sys.stderr):
                fresh = next(measured, None)
            if fresh is None:
                break
            yield fresh


def _device(name: str | None) -> Any:
    import torch

    if name is None:
        current = torch.accelerator.current_accelerator()
        return torch.device(current.type if current is not None else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        if device.type != "cpu":
            torch.get_device_module(device)  # meta has none, and computes nothing
    except (RuntimeError, AssertionError) as err:
        raise click.UsageError(f"--device {name}: torch cannot use it here: {err}") from err
    return device


def _check_places(output: Path | None, plot: Path | None) -> None:
    """Find out now what would else be lost after minutes of measuring."""
    from kernels.bench.report import PLOT_SUFFIXES

    for place in filter(None, (output, plot)):
        folder = place.absolute().parent
        if not folder.is_dir():
            raise click.UsageError(f"{place}: there is no folder {folder}.")
        if place.exists() and not place.is_file():
            raise click.UsageError(f"{place} is no plain file: expected the name of one.")
        if not os.access(folder, os.W_OK):
            raise click.UsageError(f"{place}: no file can be written into {folder}.")
    if plot is None:
        return
    if plot.suffix not in PLOT_SUFFIXES:
        raise click.UsageError(f"--plot {plot}: expected a name in {' or '.join(PLOT_SUFFIXES)}.")
    if output is not None and output.absolute() == plot.absolute():
        raise click.UsageError(f"--output and --plot name one file, {plot}.")
    try:
        import matplotlib  # noqa: F401
    except ImportError as err:
        raise KernelError("--plot needs matplotlib: pip install 'kernels[bench]'") from err


def _look_at_load() -> float:
    """Say so where other programs take the processors that are timed: a call may then take a hundred times as long."""
    from kernels.bench.machine import find_load

    load, processors = find_load()
    if load >= processors / 2:
        say_warning(
            f"this machine is busy (load {load:.1f} on {processors} processors): what is timed "
            "on the CPU now, ours or a peer, may have waited for other programs"
        )
    return round(load, 1)


def _check_ways(ways: tuple[Way, ...], device: Any, plot: Path | None) -> None:
    from kernels.bench.timing import ways_of

    there = ways_of(device)
    if ways and not set(ways) & set(there):
        raise click.UsageError(
            f"--way {' --way '.join(ways)}: on {device} there are {' and '.join(there)}."
        )
    if plot is not None and set(ways) == {"loop"}:
        raise click.UsageError("--plot draws cold and warm times, and --way loop has none.")


def _nothing_measured(found: Benchmarked, only: str | None, labels: list[str]) -> Exception:
    """Say why there is not a single row: no case is wanted of those with the labels, or there is none."""
    if only is not None:
        from difflib import get_close_matches

        near = get_close_matches(only, labels, n=3, cutoff=0.3) or labels[:3]
        others = len(set(labels)) - len(near)
        such = ", ".join(near) + (f" and {others} more" if others > 0 else "")
        there = f"; there are {such}" if near else ""
        return click.UsageError(f"no case of {found.name} contains {only!r}{there}.")
    places = ", ".join(script.name for script in found.scripts)
    return BenchmarkError(places, "cases(kernel, device) yields nothing for this device")


def _plot(rows: list[Row], place: Path, meta: dict[str, Any]) -> None:
    from kernels.bench.report import can_be_drawn, draw_plots

    if not any(map(can_be_drawn, rows)):
        raise KernelError(
            f"--plot {place}: nothing to draw, since no case says how much it moves (moved_bytes) "
            "or computes (flops); the figures are above."
        )
    draw_plots(rows, place, title=_heading(meta))


def _heading(meta: dict[str, Any]) -> str:
    return (
        f"{meta['kernel']} on {meta['device']}, torch {meta['torch']}, "
        f"a copy moves {meta['ceiling_gb_per_s']:.4g} GB/s"
    )


def _show_table(rows: Sequence[Row], meta: dict[str, Any]) -> None:
    from kernels.bench.report import fit_table, format_table

    click.echo(f"{_heading(meta)}\n")
    if not sys.stdout.isatty():
        click.echo(format_table(rows))
        return
    # A terminal that does not know its width says 0.
    width = os.get_terminal_size(sys.stdout.fileno()).columns or sys.maxsize
    table, left_out = fit_table(rows, width)
    click.echo(table)
    if left_out:
        say_note(f"no room here for {', '.join(left_out)}; a wider terminal or --json shows them")


def _say_progress(rows: Sequence[Row]) -> None:
    times = ", ".join(f"{row.way} {row.ours_us:.4g}" for row in rows)
    click.echo(f"{rows[0].label}: {times} µs", err=True)
