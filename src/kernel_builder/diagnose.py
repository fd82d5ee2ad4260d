"""What a compiler's failure means: the file, the command, its words, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# What a compiler says first of a fault: file:line: error (g++, clang), file(line): error (nvcc).
_FAULT = re.compile(r"^[^\s:(]+(:\d+(:\d+)?:|\(\d+\):) (fatal )?error\b", re.MULTILINE)
_SHOWN_LINES = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileFailure:
    """A source file that does not compile.

    Attributes:
        source: its path in the project.
        command: the compiler's command; it runs in the staged copy of the project.
        output: what the compiler said.
        hint: what to do, where that is known.
        log: the file that has the command and all that the compiler said, where there is one.
    """

    source: str
    command: str
    output: str
    hint: str | None = None
    log: Path | None = None

    @property
    def excerpt(self) -> str:
        """What the compiler said from its first fault on, which names file and line; not all of it."""
        first = _FAULT.search(self.output)
        lines = self.output[0 if first is None else first.start() :].rstrip().splitlines()
        left = len(lines) - _SHOWN_LINES
        more = [f"... {left} more lines"] if left > 0 else []
        return "\n".join([*lines[:_SHOWN_LINES], *more])

    def __str__(self) -> str:
        return format_failures([self])


def format_failures(
    failures: Iterable[CompileFailure], *, variants: Sequence[str] = (), every: bool = True
) -> str:
    """Write failures of files that are one to people: the fault, then what to do, then where more is.

    Args:
        failures: the same file in one or more variants, with the same words of the compiler.
        variants: the names of these variants.
        every: whether these are all that were tried.
    """
    failures = tuple(failures)
    first = failures[0]
    where = "" if every or not variants else f" for {' and '.join(variants)}"
    lines = [first.excerpt, f"{first.source}: does not compile{where}"]
    lines += [f"  hint: {first.hint}"] if first.hint else []
    lines += [
        f"  the command and all that was said: {each.log}"
        for each in failures
        if each.log is not None
    ]
    return "\n".join(lines)


# Headers of libraries that are wheels of their own, apart from the compiler's.
_TOOLKIT_HEADER = re.compile(
    r"(cublas|cudnn|cufft|curand|cusolver|cusparse|nppi?|nvrtc|nvJitLink|nvjpeg|cupti)\w*\.h|nvtx3/.*"
)

# What compilers say, and what to do about it; the first that fits counts.
_HINTS = (
    (
        r"TORCH_STABLE_ONLY or TORCH_TARGET_VERSION is defined",
        "this header is not part of torch's stable ABI; include torch/csrc/stable/*.h "
        "instead, or build for torch's full interface",
    ),
    (
        r"pybind11/|PYBIND11_MODULE|\bpy::|'py' (was not|has not|is not)",
        "pybind11 needs more than Python's stable ABI, so kernels do without it: include "
        "torch/extension.h or torch/library.h, and in place of PYBIND11_MODULE write "
        'TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("f(Tensor x) -> Tensor", '
        "&f); } and REGISTER_EXTENSION(TORCH_EXTENSION_NAME), both from registration.h",
    ),
    (
        r"cu(?i:blas|sparse|solver)\w*\W+(was not declared|is undefined)|CU(BLAS|SPARSE|SOLVER)_\w+\W+(was not declared|is undefined)",
        "the pinned toolkit has no cuBLAS, cuSPARSE and cuSOLVER, of which torch's headers only "
        "mention the handles: name an installed toolkit, --cuda-home PATH",
    ),
    (
        r"unsupported GNU version",
        "nvcc does not take this C++ compiler: install an older g++ and set CXX to it",
    ),
    (
        r"Killed signal",
        "the compiler was killed, probably for want of memory: build with --jobs 1",
    ),
)


def find_hint(project: Path, output: str) -> str | None:
    """Say what to do about a compiler's words, where that is known."""
    absent = re.search(r"fatal error: ([^:\n]+): No such file", output)
    if absent is not None:
        return _find_header_hint(project, absent[1])
    return next((hint for pattern, hint in _HINTS if re.search(pattern, output)), None)


def _find_header_hint(project: Path, name: str) -> str:
    """Say what to do about a header that is not there."""
    places = sorted(
        path.relative_to(project).as_posix()
        for path in project.rglob(Path(name).name)
        if "build" not in path.relative_to(project).parts[:1]
    )
    if places:
        return (
            f"{places[0]} is in the project but not among the files that build.toml lists: "
            "add it to src of this component (and its directory to include)"
        )
    if _TOOLKIT_HEADER.fullmatch(name):
        return (
            f"{name} comes with a whole CUDA toolkit, and the pinned one is the compiler, the "
            "runtime and CCCL: name an installed toolkit, --cuda-home PATH"
        )
    return (
        "builds see the project's listed files, the toolchain, torch and declared "
        "dependencies alone: list the header in src, or name what brings it under depends"
    )
