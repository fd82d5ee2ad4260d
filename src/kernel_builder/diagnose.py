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
class Toolkit:
    """The CUDA toolkit that did not compile a file.

    Attributes:
        version: its version.
        home: its directory where it is the user's own; None: a pinned one.
    """

    version: str
    home: Path | None = None

    def __str__(self) -> str:
        return f"CUDA {self.version}" + ("" if self.home is None else f" in {self.home}")


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
_LIBRARY_HEADER = re.compile(
    r"(cublas|cudnn|cufft|curand|cusolver|cusparse|nppi?|nvrtc|nvJitLink|nvjpeg|cupti)\w*\.h|nvtx3/.*"
)
# Those that come with the compiler, the runtime and CCCL.
_RUNTIME_HEADER = re.compile(r"(crt|cooperative_groups|cub|cuda|nv|thrust)/.*|cuda\w*\.h(pp)?")

# A name of a library, for whose headers we have stand-ins that serve torch's alone.
_LIBRARY_NAME = re.compile(
    r"(cu(?i:blas|sparse|solver)\w*|CU(BLAS|SPARSE|SOLVER)_\w+)\W+(was not declared|is undefined)"
)
# What a toolkit says of that which came after it: a function or a type of the runtime or the driver,
# an instruction, an architecture.
_UNKNOWN = re.compile(
    r"identifier \"(cu(?:da)?[A-Z]\w*|CU_\w+)\" is undefined"
    r"|'(cu(?:da)?[A-Z]\w*|CU_\w+)' (?:was not declared|does not name a type|has not been declared)"
)
_TOO_NEW = re.compile(
    r"requires PTX ISA \.version ([\d.]+)|[Uu]nsupported gpu architecture '([^']+)'"
    r"|Value '(sm_\w+)' is not defined for option"
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
        r"unsupported (GNU|clang) version",
        "nvcc does not take this C++ compiler: install an older one and set CXX to it",
    ),
    (
        r"Killed signal",
        "the compiler was killed, probably for want of memory: build with --jobs 1",
    ),
)


def find_hint(project: Path, output: str, toolkit: Toolkit | None = None) -> str | None:
    """Say what to do about a compiler's words, where that is known.

    Args:
        project: the directory of the project.
        output: the words.
        toolkit: what compiled it, where it is of a variant for CUDA.
    """
    absent = re.search(r"fatal error: ([^:\n]+): No such file", output)
    if absent is not None:
        return _find_header_hint(project, absent[1], toolkit)
    if _LIBRARY_NAME.search(output) is not None:
        own = toolkit is not None and toolkit.home is not None
        return (
            f"{toolkit if own else 'the pinned toolkit'} has no cuBLAS, cuSPARSE and cuSOLVER, of which "
            "torch's headers only mention the handles: "
            + ("install them there" if own else "name an installed toolkit, --cuda-home PATH")
        )
    known = next((hint for pattern, hint in _HINTS if re.search(pattern, output)), None)
    host = re.search(r"gcc versions later than (\d+) are not supported", output)
    if host is not None:
        return (
            f"this nvcc takes g++ up to {host[1]}: install it (Debian: apt-get install "
            f"g++-{host[1]}) and set CXX=g++-{host[1]}"
        )
    return known if known is not None or toolkit is None else _find_age_hint(output, toolkit)


def _find_age_hint(output: str, toolkit: Toolkit) -> str | None:
    """Say what to do where a toolkit is older than what the sources use."""
    name = _UNKNOWN.search(output)
    later = _TOO_NEW.search(output)
    if name is not None:
        what = (
            f"{next(filter(None, name.groups()))} is not in the headers of {toolkit} that are included "
            "here: include the one that has it, such as cuda_runtime.h or cuda.h"
        )
    elif later is not None:
        what = f"{toolkit} is older than {next(filter(None, later.groups()))}"
    else:
        return None
    return (
        f"{what}; where only a later CUDA has it, write that as cuda-minver of this component, which older "
        "ones then leave out, and build with it: --cuda VERSION, or --cuda-home PATH"
    )


def _find_header_hint(project: Path, name: str, toolkit: Toolkit | None) -> str:
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
    library = _LIBRARY_HEADER.fullmatch(name) is not None
    if toolkit is not None and toolkit.home is not None:
        if library or _RUNTIME_HEADER.fullmatch(name):
            return (
                f"{name} belongs to CUDA, and {toolkit} is without it: install the toolkit's headers "
                "whole (CCCL and each library may be a package of its own), or name another toolkit"
            )
    elif library:
        return (
            f"{name} comes with a whole CUDA toolkit, and the pinned one is the compiler, the "
            "runtime and CCCL: name an installed toolkit, --cuda-home PATH"
        )
    return (
        "builds see the project's listed files, the toolchain, torch and declared "
        "dependencies alone: list the header in src, or name what brings it under depends"
    )
