"""The errors of the builder.

KernelError (kernel_spec)            exit code 1
├── ConfigError    (ValueError)      exit code 2: build.toml is wrong; .faults, all of them
├── ProjectError   (ValueError)      exit code 2: the directory is no project, or lacks a file
├── ScaffoldError                    exit code 2: ``init`` cannot write what was asked for
├── SelectionError (ValueError)      exit code 2: no such backend or variant in the plan
├── UploadError                      what lies in ``build/`` cannot be published
└── BuilderError                     the head of what the build itself raises
"""

from __future__ import annotations

from dataclasses import dataclass

from kernel_spec.errors import KernelError, UsageError


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
    """Write a fault as one line: ``build.toml:LINE: path: message; did you mean "x"?``."""
    parts = [f"{file}:{fault.line}", fault.path, fault.message]
    text = ": ".join(part for part in parts if part)
    return text if fault.suggestion is None else f"{text}; did you mean {fault.suggestion}?"


class ConfigError(KernelError, ValueError):
    """A ``build.toml`` with faults, all of which are listed, one a line."""

    exit_code = 2

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


class UploadError(KernelError):
    """What lies in ``build/`` cannot be published as it is."""


class BuilderError(KernelError):
    """The head of what goes wrong while a kernel is built."""
