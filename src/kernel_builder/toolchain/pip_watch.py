"""How far pip is with what it fetches: from the lines that it writes and the files that grow."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Called with what is being fetched, how many bytes are here, and how many there are; 0 where a number
# is not known.
OnFetch = Callable[[str, int, int], None]

_SECONDS = 0.5
_WHEEL = re.compile(
    r"\s*(Downloading|Using cached|Processing) (\S+?\.whl)(?!\.)(?: \(([\d.]+) (\w+)\))?"
)
_UNITS = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


class PipWatch:
    """Reads what pip says, line by line, and tells how far it is.

    pip's own bar needs a terminal, and its older versions have no other. They all write a wheel
    into a file of its whole name, and say its size before.
    """

    def __init__(self, scratch: Path, on_fetch: OnFetch) -> None:
        self._scratch = scratch
        self._on_fetch = on_fetch
        self._what = ""
        self._total = 0
        self._guard = threading.Lock()

    def read_line(self, line: str) -> None:
        """Take in a line."""
        match = _WHEEL.match(line)
        if match is not None:
            name, version = match[2].rpartition("/")[2].split("-")[:2]
            verb = "fetching" if match[1] == "Downloading" else "taking from this machine"
            size = int(float(match[3]) * _UNITS.get(match[4], 0)) if match[3] else 0
            self._tell(f"{verb} {name.replace('_', '-')} {version}", 0, size)
        elif line.startswith("Looking in indexes: "):
            self._tell(f"looking in {line.partition(': ')[2]}", 0, 0)
        elif line.startswith("Installing collected packages"):
            self._tell("unpacking", 0, 0)
        elif "WARNING: Retrying" in line:
            self._tell("no answer from the package index; trying again", 0, 0)

    def look(self) -> None:
        """Tell how much of the current wheel is here."""
        with self._guard:
            what, total = self._what, self._total
        if total:
            self._on_fetch(what, min(self._measure(), total), total)

    def _tell(self, what: str, done: int, total: int) -> None:
        with self._guard:
            again = what == self._what
            self._what, self._total = what, total
        if not again:
            self._on_fetch(what, done, total)

    def _measure(self) -> int:
        sizes = [0]
        for path in self._scratch.glob("*/*.whl"):
            with suppress(OSError):
                sizes.append(path.stat().st_size)
        return sizes[-1]


@contextmanager
def watch_pip(scratch: Path, on_fetch: OnFetch | None) -> Iterator[Callable[[str], None] | None]:
    """Tell how far pip is while the block runs, which hands on each line of pip.

    Args:
        scratch: the directory that is TMPDIR to pip.
        on_fetch: who is told; None: nobody.
    """
    if on_fetch is None:
        yield None
        return
    watch = PipWatch(scratch, on_fetch)
    done = threading.Event()

    def look_often() -> None:
        while not done.wait(_SECONDS):
            watch.look()

    thread = threading.Thread(target=look_often, daemon=True)
    thread.start()
    try:
        yield watch.read_line
    finally:
        done.set()
        thread.join()
