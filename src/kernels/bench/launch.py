"""The child process of a trial: loads a kernel, then runs its first benchmark case on every visible device.

``python -m kernels.bench.launch FILE KERNEL [REVISION]`` writes each step to FILE before it is taken, so
that the last line says what a process that is gone was about to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernels.bench.script import open_kernel, read_cases
from kernels.errors import NotAKernelError, RevisionNotFoundError
from kernels.load import get_kernel, get_local_kernel

NOTHING = "nothing to launch: it has no benchmark cases"


def launch(kernel: str, revision: str, say: Callable[[str], None]) -> None:
    """Load a kernel and launch it once on every visible device; raises whatever that raises."""
    say("load it")
    path = Path(kernel)
    module = get_local_kernel(path) if path.is_dir() else get_kernel(kernel, revision or None)
    try:
        scripts = open_kernel(f"{kernel}@{revision}" if revision else kernel).scripts
    except (NotAKernelError, RevisionNotFoundError):
        say(NOTHING)
        return
    for device in _devices():
        for script in scripts:
            case = next(read_cases(script, module, device), None)
            if case is not None:
                say(f"run {case.label} on {device}")
                case.ours()
                _synchronize(device)


def _devices() -> Iterator[Any]:
    import torch

    current = torch.accelerator.current_accelerator()
    if current is None:
        yield torch.device("cpu")
        return
    for index in range(torch.accelerator.device_count()):
        yield torch.device(current.type, index)


def _synchronize(device: Any) -> None:
    import torch

    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def main(arguments: list[str]) -> None:
    """Run the trial of a kernel."""
    place, kernel, *revision = arguments
    with Path(place).open("a", encoding="utf-8") as file:

        def say(step: str) -> None:
            file.write(f"{step}\n")
            file.flush()

        launch(kernel, revision[0] if revision else "", say)


if __name__ == "__main__":
    main(sys.argv[1:])
