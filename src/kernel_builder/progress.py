"""How far a build is, said while it runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Reporter(Protocol):
    """Who is told how far a build is."""

    def begin(self, variant: str, doing: str = "building") -> None:
        """A variant is begun; not said of one that is up to date."""

    def fetch(self, variant: str, what: str, done: int, total: int) -> None:
        """A toolchain is fetched for a variant, with so many bytes here of so many; 0: not known."""

    def step(self, variant: str, done: int, total: int, what: str) -> None:
        """One of the steps of a variant is done."""

    def end(self, variant: str, outcome: str, seconds: float) -> None:
        """A variant is done, whether it was begun or failed before."""


class SilentReporter:
    """Tells nobody."""

    def begin(self, variant: str, doing: str = "building") -> None:
        """Say nothing."""

    def fetch(self, variant: str, what: str, done: int, total: int) -> None:
        """Say nothing."""

    def step(self, variant: str, done: int, total: int, what: str) -> None:
        """Say nothing."""

    def end(self, variant: str, outcome: str, seconds: float) -> None:
        """Say nothing."""


class LineReporter:
    """Writes one line for each step; for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fetched = ""

    def begin(self, variant: str, doing: str = "building") -> None:
        """Write that a variant is begun."""
        self._write(f"{variant}: {doing}")

    def fetch(self, variant: str, what: str, done: int, total: int) -> None:  # noqa: ARG002
        """Write what is fetched and how large it is, once; not how it grows."""
        if what != self._fetched:
            self._fetched = what
            size = f" ({format_bytes(total)})" if total else ""
            self._write(f"{variant}: {what}{size}")

    def step(self, variant: str, done: int, total: int, what: str) -> None:
        """Write what is done."""
        self._write(f"{variant}: [{done}/{total}] {what}")

    def end(self, variant: str, outcome: str, seconds: float) -> None:
        """Write what became of the variant."""
        self._write(f"{variant}: {outcome} in {seconds:.1f} s")

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


class BarReporter:
    """Draws one bar for each variant; for terminals."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def begin(self, variant: str, doing: str = "building") -> None:
        """Draw an empty bar; one that waited keeps its own."""
        if variant in self._tasks:
            self._progress.update(self._tasks[variant], what=doing)
        else:
            self._tasks[variant] = self._progress.add_task(variant, total=None, what=doing)

    def fetch(self, variant: str, what: str, done: int, total: int) -> None:
        """Fill the bar with what is here, in megabytes; the steps begin it anew."""
        size = f": {format_bytes(done)} of {format_bytes(total)}" if done < total else ""
        self._progress.update(
            self._tasks[variant],
            completed=done // 1_000_000,
            total=max(1, total // 1_000_000),
            what=what + size,
        )

    def step(self, variant: str, done: int, total: int, what: str) -> None:
        """Fill the bar up to what is done."""
        self._progress.update(self._tasks[variant], completed=done, total=total, what=what)

    def end(self, variant: str, outcome: str, seconds: float) -> None:
        """Fill the bar and say what became of the variant."""
        if variant not in self._tasks:
            self.begin(variant)
        task = self._tasks[variant]
        total = self._progress.tasks[self._progress.task_ids.index(task)].total or 1
        what = f"{outcome} in {seconds:.1f} s"
        self._progress.update(task, completed=total, total=total, what=what)


def format_bytes(size: int) -> str:
    """Write a size for people."""
    return f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{size / 1e3:.0f} kB"


@contextmanager
def open_reporter(stream: TextIO) -> Iterator[Reporter]:
    """Give the reporter that fits a stream: a bar where it is a terminal, else plain lines."""
    if not stream.isatty():
        yield LineReporter(stream)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(file=stream)) as progress:
        yield BarReporter(progress)
