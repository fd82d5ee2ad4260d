"""What a compiler's failure means: the file, the command, its words, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileFailure:
    """A source file that does not compile.

    Attributes:
        source: its path in the project.
        command: the compiler's command; it runs in the staged copy of the project.
        output: what the compiler said.
        hint: what to do, where that is known.
    """

    source: str
    command: str
    output: str
    hint: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.source}: does not compile", f"  {self.command}", self.output.rstrip()]
        return "\n".join([*lines, *([f"  hint: {self.hint}"] if self.hint else [])])


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
