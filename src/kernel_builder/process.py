"""Starting programs: the one place that does, keeping each command with what it said."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import CommandError

# How long a program that is told to stop may take.
_GRACE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A program that has ended.

    Attributes:
        command: its arguments.
        code: its exit code; negative where a signal ended it.
        output: what it wrote to its output and error streams, in order.
        late: whether it was ended since it ran too long.
    """

    command: tuple[str, ...]
    code: int
    output: str
    late: bool = False


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    timeout: float | None = None,
    on_line: Callable[[str], None] | None = None,
    check: bool = True,
) -> Finished:
    """Run a program to its end, without input.

    The program and everything that it starts is one process group, which ends with this call,
    whether it returns or is interrupted.

    Args:
        command: the program and its arguments.
        cwd: its working directory.
        variables: its whole environment; None passes ours on.
        timeout: the longest time in seconds.
        on_line: called with each line of output as it comes.
        check: raise where the exit code is not 0.

    Raises:
        CommandError: it cannot be started, ran too long, or (with ``check``) failed.
    """
    words = tuple(str(word) for word in command)
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=None if variables is None else dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as err:
        failed = Finished(command=words, code=127, output=str(err))
        raise CommandError(
            f"{words[0]}: cannot be started: {err.strerror}", finished=failed
        ) from err
    late = threading.Event()

    def stop() -> None:
        late.set()
        _end_group(process)

    timer = None if timeout is None else threading.Timer(timeout, stop)
    lines: list[str] = []
    assert process.stdout is not None
    try:
        if timer is not None:
            timer.start()
        for line in process.stdout:
            lines.append(line)
            if on_line is not None:
                on_line(line.rstrip("\n"))
        code = process.wait()
    finally:
        if timer is not None:
            timer.cancel()
        _end_group(process)
        process.wait()
        process.stdout.close()
    finished = Finished(command=words, code=code, output="".join(lines), late=late.is_set())
    if finished.late:
        message = f"{shlex.join(words)}: not done after {timeout:g} s"
        raise CommandError(f"{message}\n{finished.output}".rstrip(), finished=finished)
    if check and code != 0:
        message = f"{shlex.join(words)}: exit code {code}"
        raise CommandError(f"{message}\n{finished.output}".rstrip(), finished=finished)
    return finished


def _end_group(process: subprocess.Popen[str]) -> None:
    """End a program and what it started: by request first, since Ninja's compilers are groups of their own."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
