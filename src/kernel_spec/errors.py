"""The root of every error of the project, and the errors of the contract.

    KernelError                          exit code 1
    ├── UsageError     (ValueError)      exit code 2: the command or call is wrong
    │   └── WrongTypeError (TypeError)   an argument of a type that cannot be meant
    ├── FormatError    (ValueError)      a name or document is not as its format says
    │   ├── VariantNameError             .kind
    │   ├── DocumentError                .faults, all of them
    │   │   ├── MetadataError            a metadata.json
    │   │   └── LockError                a kernels.lock
    │   ├── WireError                    an answer of a hub
    │   └── BinaryFormatError            not an ELF file, or a damaged one
    ├── IntegrityError (ValueError)      bytes are not those that were promised
    └── ConflictError                    a branch has moved, a tag stands elsewhere

The other packages hang their own branches on :class:`KernelError`.
"""

from __future__ import annotations

from dataclasses import dataclass


class KernelError(Exception):
    """The root of every error that this project raises on purpose.

    Attributes:
        exit_code: what a command ends with that it stops.
        names_lines: whether its message is lines of ``FILE:LINE: ...``, which editors jump to; commands
            then write nothing before them.
    """

    exit_code = 1
    names_lines = False


class UsageError(KernelError, ValueError):
    """A command or call that cannot be meant: wrong option, wrong combination."""

    exit_code = 2


class WrongTypeError(UsageError, TypeError):
    """An argument of a type that cannot be meant; it is named, with what was expected."""

    def __init__(self, argument: str, expected: str, found: object) -> None:
        self.argument = argument
        text = repr(found)
        # What a whole model or table looks like is no help.
        text = text if len(text) <= 80 and "\n" not in text else f"a {type(found).__name__}"
        super().__init__(f"{argument}: expected {expected}, found {text}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that is wrong with a document.

    Attributes:
        kind: the kind of fault, one of the words that its format lists.
        where: the path of the key, such as ``digest.files`` or ``[0].lock.commit``.
        message: what was found and what was expected.
        entry: the member of a list or table that is at fault, if one is.
    """

    kind: str
    where: str
    message: str
    entry: str | None = None

    def __str__(self) -> str:
        place = f"{self.where}[{self.entry!r}]" if self.entry is not None else self.where
        return f"{place}: {self.message}" if place else self.message


class FormatError(KernelError, ValueError):
    """A name or a document is not as its format says."""


class VariantNameError(FormatError):
    """The name of a directory is not the name of a build variant."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class DocumentError(FormatError):
    """A document with faults, all of which are listed."""

    def __init__(self, what: str, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join([f"{what}:", *(f"  {fault}" for fault in faults)]))
        self.faults = faults


class MetadataError(DocumentError):
    """A ``metadata.json`` that cannot be used."""


class LockError(DocumentError):
    """A ``kernels.lock`` that cannot be used."""


class WireError(FormatError):
    """A hub gave an answer that is not as the protocol says."""


class BinaryFormatError(FormatError):
    """A file that should be an ELF shared object or fat binary and is not."""


class IntegrityError(KernelError, ValueError):
    """Bytes are not those that a digest, a lock or a hub promised."""


class ConflictError(KernelError):
    """Somebody else changed what was to be changed: a branch has moved, a tag is taken."""
