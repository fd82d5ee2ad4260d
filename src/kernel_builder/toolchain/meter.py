"""A program that runs another and writes down what it took: seconds, CPU seconds and peak memory.

Figures come from the kernel that accounts for the child and for all that it waited for. The
sandbox ends its processes without waiting, so they have to be taken inside of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.toolchain.cpu import CpuToolchain
from kernel_builder.toolchain.small_program import compile_once

# meter FILE PROGRAM ARGUMENT...: the exit code is the program's, or 128 and its signal.
_SOURCE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval time) { return time.tv_sec + time.tv_usec * 1e-6; }

int main(int count, char **words) {
  if (count < 3) return 2;
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  pid_t child = fork();
  if (child == 0) {
    execvp(words[2], words + 2);
    perror(words[2]);
    _exit(127);
  }
  if (child < 0) { perror("fork"); return 126; }
  int status = 0;
  struct rusage used;
  if (wait4(child, &status, 0, &used) < 0) { perror("wait4"); return 126; }
  clock_gettime(CLOCK_MONOTONIC, &end);
  FILE *file = fopen(words[1], "w");
  if (file != NULL) {
    double wall = (end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec) * 1e-9;
    double busy = seconds(used.ru_utime) + seconds(used.ru_stime);
    fprintf(file, "%.3f %.3f %lld\n", wall, busy, used.ru_maxrss * 1024LL);
    fclose(file);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What a program took.

    Attributes:
        seconds: the time on the clock.
        cpu_seconds: the time on processors, of it and of all that it started and waited for.
        peak: the largest memory of one of these processes at any moment, in bytes.
    """

    seconds: float
    cpu_seconds: float
    peak: int


def make_meter(toolchain: CpuToolchain, *, variables: Mapping[str, str], store: Path) -> Path:
    """Return the program; it is compiled once and stored.

    Args:
        toolchain: the compiler.
        variables: the environment of the compiler.
        store: the directory of all that is made once.

    Raises:
        CommandError: the compiler fails.
    """
    return compile_once(_SOURCE, "meter", toolchain=toolchain, variables=variables, store=store)


def read_figures(place: Path) -> Figures | None:
    """Read what the program wrote; None where it did not end by itself."""
    try:
        wall, busy, peak = place.read_text().split()
        return Figures(seconds=float(wall), cpu_seconds=float(busy), peak=int(peak))
    except (OSError, ValueError):
        return None
