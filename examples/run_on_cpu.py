"""Runs a script that was written for a GPU on the CPU, unedited and with small tensors.

    python examples/run_on_cpu.py [--largest-size 256] SCRIPT [ARGUMENT ...]

What the script puts on "cuda" lands on the CPU, CUDA's events read this machine's clock, and no
dimension of a new tensor is larger than --largest-size. Times that such a script prints are those of
a CPU on small tensors: they say that it runs, not how fast the kernel is.
"""

import argparse
import runpy
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

LARGEST_SIZE = 256
# What makes a tensor of a given shape.
MAKERS = (torch.empty, torch.full, torch.ones, torch.rand, torch.randn, torch.zeros)


class OnCpu(TorchFunctionMode):
    """Every call of torch names the CPU instead of a GPU; new tensors are no larger than is given."""

    def __init__(self, largest_size: int):
        super().__init__()
        self.largest_size = largest_size

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in MAKERS:
            shape_first = func is torch.full  # its second argument is the value
            args = (*map(self.cap, args[:1]), *args[1:]) if shape_first else map(self.cap, args)
            if "size" in kwargs:
                kwargs["size"] = self.cap(kwargs["size"])
        if func is torch.Tensor.cuda:
            return args[0]
        named = {name: as_cpu(value) for name, value in kwargs.items()}
        return func(*map(as_cpu, args), **named)

    def cap(self, size: Any) -> Any:
        """Cut one dimension, or each of a shape."""
        if isinstance(size, (tuple, list)):
            return tuple(map(self.cap, size))
        is_count = isinstance(size, int) and not isinstance(size, bool)
        return min(size, self.largest_size) if is_count else size


def as_cpu(value: Any) -> Any:
    """Turn a CUDA device into the CPU, and leave everything else as it is."""
    is_cuda = isinstance(value, str) and value.partition(":")[0] == "cuda"
    is_cuda = is_cuda or (isinstance(value, torch.device) and value.type == "cuda")
    return torch.device("cpu") if is_cuda else value


class ClockEvent:
    """As much of ``torch.cuda.Event`` as a measurement needs, by this machine's clock."""

    def __init__(self, **_options: object):
        self.seconds = 0.0

    def record(self, *_stream: object) -> None:
        self.seconds = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "ClockEvent") -> float:
        """Return the milliseconds until `end`."""
        return (end.seconds - self.seconds) * 1e3


def run(script: Path, largest_size: int = LARGEST_SIZE) -> dict[str, Any]:
    """Run a script as ``python SCRIPT`` would, and return the names that it leaves."""
    with (
        mock.patch.object(torch.cuda, "Event", ClockEvent),
        mock.patch.object(torch.cuda, "synchronize", lambda *_device: None),
        mock.patch.object(sys, "path", [str(script.parent), *sys.path]),
        OnCpu(largest_size),
    ):
        return runpy.run_path(str(script), run_name="__main__")


def main() -> None:
    """Read the command line and run the script with the rest of it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--largest-size", type=int, default=LARGEST_SIZE)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.script.is_file():
        parser.error(f"there is no file {options.script}")
    if options.largest_size < 1:
        parser.error(f"--largest-size must be at least 1; found {options.largest_size}")
    sys.argv = [str(options.script), *options.arguments]
    run(options.script, options.largest_size)


if __name__ == "__main__":
    main()
