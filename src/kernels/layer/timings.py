"""Keeps measured times for later processes: one file per kernel layer, original, device and mode.

``$XDG_STATE_HOME/kernels/measured/<hash>.json``::

    {"format": 1, "what": {...}, "microseconds": {"float16 256x4096": [6.1, 58.8]}}

The hash is that of ``what``: the content of the kernel's variant and of the original's source, the
device, torch's version. A file that cannot be read or written only costs a new measurement.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kernel_spec.document import UNREADABLE, read_plain
from kernels.store import write_whole

FORMAT = 1
FOLDER = "measured"
# Seconds for which other processes that write are waited for.
_PATIENCE = 5.0


class Timing(NamedTuple):
    """Microseconds of a call of the kernel and of the original, each in its best round."""

    kernel_us: float
    original_us: float

    @property
    def is_kernel_faster(self) -> bool:
        """Whether the kernel is at least as fast."""
        return self.kernel_us <= self.original_us


@dataclass(frozen=True, kw_only=True)
class TimingsFile:
    """Where the times of one kernel layer against one original are kept.

    Attributes:
        path: the file; None where nothing is kept.
        what: what the times are of; a file about something else counts as empty.
    """

    path: Path | None
    what: Mapping[str, str]

    def read(self) -> dict[str, Timing]:
        """Return what was measured before; nothing where the file cannot be used."""
        if self.path is None:
            return {}
        try:
            document = json.loads(read_plain(self.path))
            if document["format"] != FORMAT or document["what"] != dict(self.what):
                return {}
            return {
                str(shape): Timing(float(ours), float(theirs))
                for shape, (ours, theirs) in document["microseconds"].items()
            }
        except UNREADABLE:
            return {}

    def settle(self, shape: str, measure: Callable[[], Timing]) -> Timing:
        """Measure a shape, unless another process has done so meanwhile: the first one decides for all.

        So the ranks of a job on one host take the same forward, whatever each would have measured.

        Args:
            shape: the shape class.
            measure: called where the time is not known yet; what it raises comes through.
        """
        from filelock import FileLock, Timeout

        if (known := self.read().get(shape)) is not None:
            return known
        timing = Timing(*(round(each, 3) for each in measure()))
        if self.path is None:
            return timing
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.parent.with_suffix(".lock"), timeout=_PATIENCE):
                timings = self.read()
                if shape not in timings:
                    self._write(self.path, {**timings, shape: timing})
                return timings.get(shape, timing)
        except (OSError, Timeout, NotImplementedError):
            return timing

    def _write(self, path: Path, timings: Mapping[str, Timing]) -> None:
        document = {
            "format": FORMAT,
            "what": dict(self.what),
            "microseconds": {name: list(each) for name, each in sorted(timings.items())},
        }
        write_whole(path, json.dumps(document, indent=1).encode() + b"\n")


def find_timings_file(
    state: Path,
    *,
    variant: str | None,
    layer: str,
    original: Callable[..., Any],
    parameters: str,
    facts: str,
) -> TimingsFile:
    """Name the file for a kernel layer and an original.

    Args:
        state: the user's state directory.
        variant: the content of the kernel's variant; where it is unknown nothing is kept.
        layer: the name of the kernel's layer.
        original: the forward that it may stand for.
        parameters: dtypes and sizes of the layer's parameters.
        facts: the device and the mode.
    """
    import torch

    what = {
        "variant": variant or "",
        "layer": layer,
        "original": _identify(original),
        "parameters": parameters,
        "where": f"{facts}, torch {torch.__version__}",
    }
    name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
    path = state / FOLDER / f"{name}.json" if variant else None
    return TimingsFile(path=path, what=what)


def _identify(function: Callable[..., Any]) -> str:
    plain = inspect.unwrap(function)
    try:
        source = inspect.getsource(plain)
    except (OSError, TypeError):
        source = ""
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    name = getattr(plain, "__qualname__", type(plain).__name__)
    return f"{getattr(plain, '__module__', '')}.{name} {digest}"
