"""A CUDA toolkit that the user has installed: where its parts are, in the layouts of NVIDIA, Debian and conda."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.process import run
from kernel_builder.toolchain.identity import file_identity
from kernel_spec.version import MajorMinor

_HEADER = "cuda_runtime_api.h"
_VERSION = re.compile(r"^#define\s+CUDART_VERSION\s+(\d+)", re.MULTILINE)
_TARGETS = ("x86_64-linux", "sbsa-linux", "aarch64-linux")
# conda keeps the headers below targets alone; elsewhere include is a link to there, or the directory itself.
_INCLUDES = ("include", *(f"targets/{target}/include" for target in _TARGETS))
_LIBRARIES = (
    "lib",
    "lib64",
    *(f"targets/{target}/lib" for target in _TARGETS),
    *(f"lib/{machine}-linux-gnu" for machine in ("x86_64", "aarch64")),
)
# Debian has the programs in /usr/bin and /usr/lib/nvidia-cuda-toolkit, the headers among all others in
# /usr/include, and directories that look like a toolkit and hold a part of it.
_DEBIAN = ("lib/cuda", "lib/nvidia-cuda-toolkit")
_SYSTEM_INCLUDE = Path("/usr/include")

# What nvcc starts, besides the C++ compiler; it looks for them on a path that begins with its own places.
_PROGRAMS = ("cudafe++", "cicc", "ptxas", "fatbinary")
_PLACES = ("bin", "nvvm/bin", "lib/nvidia-cuda-toolkit/bin")
_SAID = re.compile(r"^#\$ (\w+)=(.*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaFiles:
    """Where a toolkit's parts are.

    Attributes:
        root: its directory.
        version: its version, as its headers have it.
        nvcc: the compiler.
        include: the directory of its headers.
        cudart: the shared runtime library, under its versioned name.
    """

    root: Path
    version: MajorMinor
    nvcc: Path
    include: Path
    cudart: Path

    @property
    def header_places(self) -> tuple[Path, ...]:
        """The directory of its headers under each of its names: either may be a link to the other."""
        places = (self.root / name for name in _INCLUDES)
        return tuple(place for place in places if (place / _HEADER).is_file())

    @property
    def shares_include(self) -> bool:
        """Whether the headers of other packages lie beside its own, where every compiler looks anyway."""
        return self.include.resolve() == _SYSTEM_INCLUDE

    def identify(self) -> str:
        """Return a text that changes with its programs and its runtime, at the cost of a few looks at the disk."""
        parts = [self.root / place / name for place in _PLACES for name in ("nvcc", *_PROGRAMS)]
        parts += [self.nvcc, self.cudart, self.include / _HEADER]
        found = (file_identity(part) for part in dict.fromkeys(parts) if part.is_file())
        return " ".join(dict.fromkeys(found))


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaAnswer:
    """What a compiler says of itself.

    Attributes:
        release: its version in full, such as ``12.4.131``; None: it was not asked.
        options: its long options, by its help; None: it was not asked.
        programs: the files that compiling starts, itself among them, and those that they read.
        launcher: what it is started by, where it would else start the programs of another toolkit.
    """

    release: str | None = None
    options: frozenset[str] | None = None
    programs: tuple[Path, ...] = ()
    launcher: tuple[str, ...] = ()


NOT_ASKED = CudaAnswer()


def find_files(home: Path) -> CudaFiles:
    """Find the parts of a toolkit; starts nothing.

    Args:
        home: its directory, or one of those that Debian's packages have.

    Raises:
        ToolchainError: it is not there or not whole; names all that is lacking.
    """
    if not home.is_dir():
        raise ToolchainError(f"{home}: no such directory; a CUDA toolkit is expected there")
    root = _find_root(home)
    nvcc = root / "bin" / "nvcc"
    header = _find_header(root)
    version = None if header is None else _read_version(header)
    cudart = None
    lacking = [] if nvcc.is_file() else ["bin/nvcc"]
    if header is None:
        lacking.append(f"include/{_HEADER}")
    elif version is None:
        lacking.append(f"CUDART_VERSION in {header}")
    else:
        # Until 11, the name had a second number.
        name = f"libcudart.so.{version.major}" + (".0" if version.major < 12 else "")
        places = (root / directory / name for directory in _LIBRARIES)
        cudart = next((place for place in places if place.is_file()), None)
        lacking += [] if cudart is not None else [name]
    if header is None or version is None or cudart is None or lacking:
        raise ToolchainError(
            f"{home} is no whole CUDA toolkit: it has no {' and no '.join(lacking)}{_advise(root)}"
        )
    return CudaFiles(root=root, version=version, nvcc=nvcc, include=header.parent, cudart=cudart)


def _find_root(home: Path) -> Path:
    """Return the directory that a toolkit's parts are below, where Debian's packages hold a part of it."""
    if _find_header(home) is None and "/".join(home.parts[-2:]) in _DEBIAN:
        root = home.parents[1]
        if _find_header(root) is not None:
            return root
    return home


def _find_header(root: Path) -> Path | None:
    places = (root / directory / _HEADER for directory in _INCLUDES)
    return next((place for place in places if place.is_file()), None)


def _advise(root: Path) -> str:
    """Say what to do about a toolkit that is not whole."""
    above = next((each for each in root.parents[:2] if (each / "bin" / "nvcc").is_file()), None)
    if above is not None and _find_header(above) is not None:
        return f"; did you mean {above}?"
    return "; name the directory that bin/nvcc and include are in, and install what it lacks there"


def _read_version(header: Path) -> MajorMinor | None:
    match = _VERSION.search(header.read_text(errors="replace"))
    return None if match is None else MajorMinor(int(match[1]) // 1000, int(match[1]) % 1000 // 10)


def ask_compiler(found: CudaFiles, variables: Mapping[str, str]) -> CudaAnswer:
    """Ask a compiler what it is, and see that what it would start is of the same toolkit.

    Raises:
        ToolchainError: it is of another version than its headers, or does not find its programs.
        CommandError: it cannot be run.
    """
    nvcc, version = found.nvcc, found.version
    said = run([nvcc, "--version"], variables=variables).output
    match = re.search(r"release (\d+)\.(\d+)(?:, V([\d.]+))?", said)
    if match is None or MajorMinor(int(match[1]), int(match[2])) != version:
        release = "no release" if match is None else f"release {match[1]}.{match[2]}"
        raise ToolchainError(
            f"{nvcc} says {release}, and the headers beside it are of CUDA {version}; "
            "name a directory that holds one whole toolkit: --cuda-home PATH"
        )
    help_text = run([nvcc, "--help"], variables=variables).output
    programs, lacking = _find_programs(found, variables)
    launcher: tuple[str, ...] = ()
    if lacking:
        # Debian's nvcc looks for most of them wherever PATH says, and another toolkit may come first there.
        path = f"{nvcc.parent}{os.pathsep}{variables.get('PATH', '')}"
        launcher = ("env", f"PATH={path}")
        programs, lacking = _find_programs(found, {**variables, "PATH": path})
    if lacking:
        raise ToolchainError(
            f"{nvcc} finds no {' and no '.join(lacking)} of its toolkit: install it whole, or name "
            "another: --cuda-home PATH"
        )
    return CudaAnswer(
        release=match[3] or str(version),
        options=frozenset(re.findall(r"^--([\w-]+)", help_text, re.MULTILINE)),
        programs=programs,
        launcher=launcher,
    )


def _find_programs(
    found: CudaFiles, variables: Mapping[str, str]
) -> tuple[tuple[Path, ...], list[str]]:
    """Return the files that compiling starts and reads, as the compiler itself finds them.

    Returns:
        The files, and the names of the programs for which it would find another toolkit's, or none.
    """
    command: list[str | Path] = [found.nvcc, "--dryrun", "-x", "cu"]
    command += ["-c", os.devnull, "-o", os.devnull]
    said = dict(_SAID.findall(run(command, variables=variables, check=False).output))
    own = Path(said.get("_HERE_", found.nvcc.parent))
    tops = (found.root, own.parent)
    expected = {os.path.realpath(top / place) for top in tops for place in _PLACES}
    files = [found.nvcc, own / "nvcc", own / "nvcc.profile"]
    lacking = []
    for name in _PROGRAMS:
        program = shutil.which(name, path=said.get("PATH", variables.get("PATH", "")))
        if program is None or os.path.realpath(Path(program).parent) not in expected:
            lacking.append(name)
        else:
            files.append(Path(program))
    library = Path(said.get("NVVMIR_LIBRARY_DIR", found.root))
    files += sorted(library.glob("libdevice*.bc"))
    return tuple(dict.fromkeys(path for path in files if path.is_file())), lacking


def find_outside(found: CudaFiles, programs: Iterable[Path]) -> tuple[Path, ...]:
    """Return what belongs to a toolkit and lies elsewhere, where links in its directory lead to.

    A toolkit may be a directory of links, to each file or to each directory of another. Of a
    directory that several files are in, the directory stands for them, unless the toolkit lies below it.
    """
    roots = (found.root, found.root.resolve())
    inside: dict[Path, set[Path]] = {}
    for place in _follow({*programs, found.cudart, *_walk_links(found)}):
        if place.exists() and not any(place.is_relative_to(root) for root in roots):
            inside.setdefault(place.parent, set()).add(place)
    outside: set[Path] = set()
    for parent, places in inside.items():
        whole = len(places) > 1 and not any(root.is_relative_to(parent) for root in roots)
        outside |= {parent} if whole else places
    return tuple(sorted(path for path in outside if not outside.intersection(path.parents)))


def _follow(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield where paths lead to, under each name on the way and under the last one."""
    waiting = list(paths)
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        yield path
        # Unlike resolve(), it takes a link to itself.
        yield Path(os.path.realpath(path))
        if path.is_symlink():
            place = Path(os.path.normpath(path.parent / path.readlink()))
            if place not in seen:
                seen.add(place)
                waiting.append(place)


def _walk_links(found: CudaFiles) -> Iterator[Path]:
    """Return the links in a toolkit's directories; those that lead to directories are not followed."""
    if found.shares_include:
        return
    for top in (found.root / "bin", found.root / "nvvm", found.include):
        if top.is_symlink():
            yield top
        for directory, names, files in os.walk(top):
            for name in (*names, *files):
                path = Path(directory, name)
                if path.is_symlink():
                    yield path
