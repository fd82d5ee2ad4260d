"""The errors of the builder.

KernelError (kernel_spec)            exit code 1
├── ConfigError    (ValueError)      exit code 2: build.toml is wrong; .faults, all of them
├── ProjectError   (ValueError)      exit code 2: the directory is no project, or lacks a file
├── ScaffoldError                    exit code 2: ``init`` cannot write what was asked for
├── ArchError                        exit code 2: no device architecture is left to compile
├── SelectionError (ValueError)      exit code 2: no such backend or variant in the plan
├── ExportError                      exit code 2: the files of other tools cannot be written or removed
├── LockError                        exit code 1: what a build would use is not what was locked
├── RebuildError                     a published variant cannot be rebuilt from what is here
├── UploadError                      what lies in ``build/`` cannot be published
└── BuilderError                     the head of what the build itself raises
    ├── CommandError                 a program failed; .finished holds its command and output
    ├── ToolchainError               a compiler, a header or torch is not there or too old
    │   └── ToolchainUnavailableError  a toolchain cannot be fetched; other backends go on
    ├── CompileError                 a source file does not compile; .failures, all of them
    │   └── ArchiveError             an archive of headers cannot be had, or is not as expected
    ├── UndeclaredInputError         sources read headers that are no input; .files, all of them
    ├── LinkError                    the objects do not link
    ├── CheckError                   a variant breaks a rule; .findings, all of them
    ├── ImportCheckError             a variant cannot be imported in a clean process
    └── StorageError                 a file cannot be read or written
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_spec.errors import KernelError, UsageError

if TYPE_CHECKING:
    from kernel_builder.check.finding import Finding
    from kernel_builder.diagnose import CompileFailure
    from kernel_builder.process import Finished


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFault:
    """One thing that is wrong with a ``build.toml``.

    Attributes:
        line: its line, from 1.
        path: the path of the key, such as ``general.backends[1]``; empty for the whole file.
        kind: the kind of fault, a word such as ``unknown-key``.
        message: what was found and what was expected.
        suggestion: what was probably meant, as it would stand in the file.
    """

    line: int
    path: str
    kind: str
    message: str
    suggestion: str | None = None


def format_fault(file: str, fault: ConfigFault) -> str:
    """Write a fault as one line: ``build.toml:LINE: path: message; did you mean "x"?``.

    What would break the line or steer a terminal is written as an escape.
    """
    parts = [f"{file}:{fault.line}", fault.path, fault.message]
    text = ": ".join(part for part in parts if part)
    if fault.suggestion is not None:
        meant = fault.suggestion
        if meant[0] not in '"[' and not meant.isdecimal():
            meant = f'"{meant}"'
        text = f"{text}; did you mean {meant}?"
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class ConfigError(KernelError, ValueError):
    """A ``build.toml`` with faults, all of which are listed, one a line."""

    exit_code = 2
    names_lines = True

    def __init__(self, file: str, faults: tuple[ConfigFault, ...]) -> None:
        self.file = file
        self.faults = faults
        self.lines = tuple(format_fault(file, fault) for fault in faults)
        super().__init__("\n".join(self.lines))


class ProjectError(UsageError):
    """A directory is not a kernel project, or a file that the project needs is not there."""


class ScaffoldError(UsageError):
    """A new project cannot be written as it was asked for."""


class SelectionError(UsageError):
    """A backend or variant was asked for that the project does not have."""


class ArchError(UsageError):
    """Of the architectures of a component, the toolkit compiles none."""


class ExportError(UsageError):
    """The files of CMake and setuptools cannot be written or removed as it was asked for."""


class LockError(KernelError):
    """A lock cannot be read, or what a build would use is not what it says."""


class RebuildError(KernelError):
    """A published variant cannot be rebuilt from what is here, or was changed where it lies."""


class UploadError(KernelError):
    """What lies in ``build/`` cannot be published as it is."""


class BuilderError(KernelError):
    """The head of what goes wrong while a kernel is built."""


class ToolchainError(BuilderError):
    """What a build needs of this machine is not there, or is too old."""


class ToolchainUnavailableError(ToolchainError):
    """A toolchain cannot be fetched here, which is no fault of the project."""


class ArchiveError(ToolchainError):
    """An archive of headers cannot be had, has another hash, or holds what is unsafe."""


class LinkError(BuilderError):
    """The objects of a variant do not link to a library."""


class ImportCheckError(BuilderError):
    """A variant that was built cannot be imported in a clean process."""


class StorageError(BuilderError):
    """A file cannot be read or written: no permission, no space, no directory."""


class CommandError(BuilderError):
    """A program failed, could not be started, or ran too long."""

    def __init__(self, message: str, *, finished: Finished) -> None:
        super().__init__(message)
        self.finished = finished


class CompileError(BuilderError):
    """Source files that do not compile, each with its command and the compiler's words."""

    def __init__(self, failures: tuple[CompileFailure, ...]) -> None:
        super().__init__("\n".join(str(failure) for failure in failures))
        self.failures = failures


class UndeclaredInputError(BuilderError):
    """Sources read headers that nothing declares: on another machine they are others, or not there."""

    def __init__(self, op_id: str, files: Mapping[str, tuple[str, ...]]) -> None:
        lines = [f"{source} reads {path}" for source, paths in files.items() for path in paths]
        super().__init__(
            "\n".join(
                [
                    f"{op_id}: headers that are no input of the build; expected only the project's "
                    "listed files, the toolchain, torch, Python and the C and C++ libraries:",
                    *(f"  {line}" for line in lines),
                    "copy them into the project and list them in src, or say where they come from: "
                    "[sources.NAME] in build.toml, with NAME under depends",
                ]
            )
        )
        self.files = files


class CheckError(BuilderError):
    """A variant that breaks rules of the format; every finding is listed."""

    def __init__(self, variant: str, findings: tuple[Finding, ...]) -> None:
        lines = [f"{variant}: {len(findings)} check(s) failed", *(str(each) for each in findings)]
        super().__init__("\n".join(lines))
        self.variant = variant
        self.findings = findings
