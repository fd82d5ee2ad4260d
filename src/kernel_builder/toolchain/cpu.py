"""The host's C++ compiler: where it is, what it is, and the files that a link by hand needs."""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_builder.errors import ToolchainError
from kernel_builder.process import run
from kernel_builder.settings import Settings
from kernel_builder.toolchain.identity import file_identity

_DEFAULT = "g++"
_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_MINIMUM_GCC = 11


class Family(StrEnum):
    """Whose options a compiler understands."""

    GCC = "gcc"
    CLANG = "clang"


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """A compiler that was found, not yet asked anything.

    Attributes:
        command: its absolute path, and arguments that always come first.
        identity: a text that changes with the program's file.
    """

    command: tuple[str, ...]
    identity: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CpuToolchain:
    """A C++ compiler and what belongs to it.

    Attributes:
        command: how it is called.
        family: whose options it understands.
        version: the first line of what it says of itself.
        cpu: ``x86_64`` or ``aarch64``.
        identity: a text that changes with the compiler or the C and C++ libraries.
        files: the start files and archives for a link by hand, by name.
        shared: this machine's C and C++ libraries, which stubs are made of.
    """

    command: tuple[str, ...]
    family: Family
    version: str
    cpu: str
    identity: str
    files: Mapping[str, Path]
    shared: tuple[Path, ...]

    @property
    def loader(self) -> str:
        """The name of the dynamic loader, which is a library too."""
        return _LOADERS[self.cpu]


def target_cpu(settings: Settings) -> str:
    """Return the processor that is built for: ``x86_64`` or ``aarch64``."""
    return settings.cpu or platform.machine()


def _default(settings: Settings) -> str:
    """Return the name of the compiler where ``CXX`` names none: Debian's, for another processor."""
    cpu = target_cpu(settings)
    return _DEFAULT if cpu == platform.machine() else f"{cpu}-linux-gnu-{_DEFAULT}"


def find_compiler(settings: Settings) -> Compiler | None:
    """Find the C++ compiler that ``CXX`` names, or else ``g++``; None where it is not there."""
    words = shlex.split(settings.cxx or _default(settings))
    program = shutil.which(words[0], path=settings.search_path) if words else None
    if program is None:
        return None
    # Where the compiler is started by another program (``ccache g++``), both count.
    programs = [shutil.which(word, path=settings.search_path) for word in words]
    identity = " ".join(file_identity(Path(each)) for each in programs if each is not None)
    return Compiler(command=(str(Path(program).absolute()), *words[1:]), identity=identity)


def get_compiler(settings: Settings) -> Compiler:
    """Find the C++ compiler.

    Raises:
        ToolchainError: it is not there.
    """
    compiler = find_compiler(settings)
    if compiler is None:
        raise ToolchainError(describe_missing(settings))
    return compiler


def describe_missing(settings: Settings) -> str:
    """Say in one line that there is no C++ compiler, where it was looked for, and what to do."""
    name = settings.cxx or _default(settings)
    origin = " (from CXX)" if settings.cxx else ""
    return (
        f"{name} not found{origin}: looked in PATH={settings.search_path}; install it "
        f"({_name_packages(settings)}) or set CXX to a C++ compiler for {target_cpu(settings)}"
    )


def _name_packages(settings: Settings) -> str:
    """Say which packages bring a compiler with its C and C++ libraries, for the processor that is built for.

    Fedora's compilers for other processors bring no C++ library (packages ``cross-gcc`` and ``glibc`` of
    Fedora 41: a sysroot with a C library is all there is).
    """
    cpu = target_cpu(settings)
    if cpu == platform.machine():
        return "Debian: apt-get install g++; Fedora: dnf install gcc-c++"
    return (
        f"Debian: apt-get install g++-{cpu.replace('_', '-')}-linux-gnu; Fedora's gcc-c++-{cpu}-linux-gnu "
        "has no C++ library: build in a container of Debian there"
    )


def read_toolchain(compiler: Compiler, settings: Settings) -> CpuToolchain:
    """Ask a compiler what it is and where its files are.

    Raises:
        ToolchainError: it is too old, for another machine, or lacks a file that a link needs or a
            program that it starts.
        CommandError: it cannot be run.
    """

    def ask(*arguments: str) -> str:
        return run([*compiler.command, *arguments], variables=settings.variables).output.strip()

    version = ask("--version").splitlines()[0]
    family = Family.CLANG if "clang" in version else Family.GCC
    major = re.match(r"\d+", ask("-dumpversion"))
    if family is Family.GCC and (major is None or int(major[0]) < _MINIMUM_GCC):
        raise ToolchainError(
            f"{compiler.command[0]} is {version}; GCC {_MINIMUM_GCC} or newer is needed: "
            "install it and set CXX to it"
        )
    machine = ask("-dumpmachine")
    cpu = machine.partition("-")[0]
    if cpu not in _LOADERS or "linux" not in machine:
        raise ToolchainError(
            f"{compiler.command[0]} compiles for {machine}; "
            f"expected Linux on {' or '.join(_LOADERS)}; set CXX to such a compiler"
        )
    if cpu != target_cpu(settings):
        raise ToolchainError(
            f"{compiler.command[0]} compiles for {cpu}, and the variant is for "
            f"{target_cpu(settings)}; set CXX to a compiler for that, or choose with --cpu"
        )
    # Clang has an assembler of its own.
    _require_programs(compiler, ("as", "ld") if family is Family.GCC else ("ld",), ask, settings)
    files = _find_files(compiler, (*_LINK_FILES, *_SHARED_LIBRARIES, _LOADERS[cpu]), ask, settings)
    shared = tuple(files[name] for name in (*_SHARED_LIBRARIES, _LOADERS[cpu]) if name in files)
    facts = [compiler.identity, version, *(file_identity(path) for path in files.values())]
    return CpuToolchain(
        command=compiler.command,
        family=family,
        version=version,
        cpu=cpu,
        identity=hashlib.sha256("\n".join(facts).encode()).hexdigest(),
        files={name: files[name] for name in _LINK_FILES if name in files},
        shared=shared,
    )


def _find_files(
    compiler: Compiler, names: Iterable[str], ask: Callable[..., str], settings: Settings
) -> dict[str, Path]:
    """Return where a compiler has the files of these names; some need not be there."""
    files: dict[str, Path] = {}
    missing = []
    for name in names:
        answer = Path(ask(f"-print-file-name={name}"))
        if answer.is_absolute() and answer.exists():
            files[name] = answer.resolve() if name.endswith(".a") else answer
        elif name not in _OPTIONAL_FILES:
            missing.append(name)
    if missing:
        raise ToolchainError(
            f"{compiler.command[0]} has no {', '.join(missing)}; install the C and C++ libraries that it "
            f"links with ({_name_packages(settings)}), or set CXX to a compiler that has them"
        )
    return files


def _require_programs(
    compiler: Compiler, names: Iterable[str], ask: Callable[[str], str], settings: Settings
) -> None:
    """See that the programs that a compiler starts are beside it, or on the path that it gets."""
    path = settings.variables.get("PATH", "")
    # Where one is not beside it, the compiler answers with the name alone.
    said = {name: ask(f"-print-prog-name={name}") for name in names}
    lacking = [name for name, found in said.items() if shutil.which(found, path=path) is None]
    if lacking:
        where = f"PATH={path}" if path else "PATH, which is empty"
        raise ToolchainError(
            f"{compiler.command[0]} needs {' and '.join(lacking)}, found neither beside it nor in "
            f"{where}; add their directory to PATH, or install them (Debian: apt-get install "
            "binutils; Fedora: dnf install binutils)"
        )


_LINK_FILES = (
    "crti.o",
    "crtbeginS.o",
    "crtendS.o",
    "crtn.o",
    "libstdc++.a",
    "libgcc.a",
    "libc_nonshared.a",
)
# libmvec, the vector functions that -ffast-math calls, is not on every machine.
_OPTIONAL_FILES = frozenset({"libc_nonshared.a", "libmvec.so.1"})
_SHARED_LIBRARIES = ("libc.so.6", "libm.so.6", "libmvec.so.1", "libstdc++.so.6", "libgcc_s.so.1")
