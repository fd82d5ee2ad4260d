"""What came of a build: one value, and its text for people."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_builder.columns import format_columns
from kernel_builder.diagnose import CompileFailure, format_failures
from kernel_builder.errors import CompileError, StorageError
from kernel_builder.planned import SkippedBackend
from kernel_builder.progress import format_bytes
from kernel_builder.toolchain.meter import Figures
from kernel_spec.errors import KernelError
from kernel_spec.whole_file import write_whole


class Outcome(StrEnum):
    """What became of a variant."""

    BUILT = "built"
    UP_TO_DATE = "up to date"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class FileReport:
    """What became of one source file.

    Attributes:
        source: its path in the project.
        reused: whether its object came from the cache.
        figures: what compiling it took; None where it was not compiled.
        log: what its compiler said; None likewise.
    """

    source: str
    reused: bool
    figures: Figures | None = None
    log: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantReport:
    """What became of one variant.

    Attributes:
        variant: its name.
        outcome: what became of it.
        seconds: how long that took.
        path: its directory; None where it failed.
        size: the bytes of its files.
        files: what became of each source file.
        archs: the device architectures that were read in the library itself, ``+PTX`` where it
            has intermediate code.
        warnings: what compilers and checks said that is no fault.
        notes: what is to be said once for all variants.
        error: why it failed.
    """

    variant: str
    outcome: Outcome
    seconds: float = 0.0
    path: Path | None = None
    size: int = 0
    files: tuple[FileReport, ...] = ()
    archs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    error: KernelError | None = None

    @property
    def compiled(self) -> int:
        """How many files were compiled."""
        return sum(not each.reused for each in self.files)

    @property
    def reused(self) -> int:
        """How many objects came from the cache."""
        return sum(each.reused for each in self.files)

    @property
    def cpu_seconds(self) -> float:
        """The time that compilers were busy, in seconds."""
        return sum(each.figures.cpu_seconds for each in self.files if each.figures)

    @property
    def peak(self) -> int:
        """The most memory that one compiler needed, in bytes; 0 where none ran."""
        return max((each.figures.peak for each in self.files if each.figures), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What came of a build.

    Attributes:
        project: the directory of the project.
        variants: the variants, in the order of the plan.
        skipped: the backends that are not built here.
        notes: what the author should know.
    """

    project: Path
    variants: tuple[VariantReport, ...]
    skipped: tuple[SkippedBackend, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[VariantReport, ...]:
        """The variants that failed."""
        return tuple(each for each in self.variants if each.outcome is Outcome.FAILED)

    @property
    def exit_code(self) -> int:
        """0 where every variant is there; 1 where one failed, or none can be built here."""
        return 1 if self.failed or not self.variants else 0


def format_report(report: Report) -> str:
    """Write a report: errors first, then a table of variants and a line for each skipped backend."""
    lines = [f"note: {note}" for note in report.notes]
    for each in report.variants:
        lines += [f"{each.variant}: warning: {warning}" for warning in each.warnings]
    lines += [line for text in _format_errors(report) for line in (text, "")]
    lines += [_format_table(report)] if report.variants else []
    lines += [str(skipped) for skipped in report.skipped]
    if not report.variants:
        lines.append("nothing can be built here")
    return "\n".join(lines)


def _format_errors(report: Report) -> list[str]:
    """Write each error once, whatever number of variants it came up in; those of compilers first."""
    compiled: dict[tuple[str, str], list[tuple[str, CompileFailure]]] = {}
    others: dict[str, None] = {}
    tried = [each for each in report.variants if each.outcome is not Outcome.UP_TO_DATE]
    for each in report.failed:
        if isinstance(each.error, CompileError):
            for failure in each.error.failures:
                key = (failure.source, failure.excerpt)
                compiled.setdefault(key, []).append((each.variant, failure))
        else:
            others[str(each.error)] = None
    texts = [
        format_failures(
            [failure for _, failure in found],
            variants=[variant for variant, _ in found],
            every=len(found) == len(tried),
        )
        for found in compiled.values()
    ]
    return [*texts, *others]


_HEAD = ("variant", "outcome", "time", "CPU", "peak", "size", "compiled", "archs", "place")
_NUMBERS = ("time", "CPU", "peak", "size")


def _format_table(report: Report) -> str:
    """Write a row for each variant, under a head; columns that say nothing are left out."""
    rows = [_HEAD, *(_row(each, report.project) for each in report.variants)]
    kept = [
        column for column in range(len(_HEAD)) if column < 2 or any(row[column] for row in rows[1:])
    ]
    right = {at for at, column in enumerate(kept) if _HEAD[column] in _NUMBERS}
    return format_columns([[row[column] for column in kept] for row in rows], right=right)


def _row(report: VariantReport, project: Path) -> tuple[str, ...]:
    total = report.compiled + report.reused
    return (
        report.variant,
        report.outcome.value,
        f"{report.seconds:.1f} s",
        f"{report.cpu_seconds:.1f} s" if report.cpu_seconds else "",
        format_bytes(report.peak) if report.peak else "",
        format_bytes(report.size) if report.path is not None else "",
        f"{report.compiled} of {total}" if report.outcome is Outcome.BUILT and total else "",
        " ".join(report.archs),
        _relative(report.path, project) if report.path is not None else "",
    )


def plain_report(report: Report) -> dict[str, object]:
    """Return a report as JSON values: times in seconds, memory and sizes in bytes."""
    return {
        "project": str(report.project),
        "variants": [_plain_variant(each) for each in report.variants],
        "skipped": {each.backend.value: each.reason for each in report.skipped},
        "notes": list(report.notes),
        "exit_code": report.exit_code,
    }


def write_report(report: Report, place: Path) -> None:
    """Write a report as JSON, whole or not at all; ``-`` is the standard output.

    Raises:
        StorageError: the file cannot be written.
    """
    text = json.dumps(plain_report(report), indent=2) + "\n"
    if place == Path("-"):
        sys.stdout.write(text)
        return
    try:
        write_whole(place, text.encode())
    except OSError as err:
        raise StorageError(
            f"{place}: {err.strerror}; name a file in a directory that is there and can be written"
        ) from err


def _plain_variant(report: VariantReport) -> dict[str, object]:
    return {
        "variant": report.variant,
        "outcome": report.outcome.value,
        "seconds": round(report.seconds, 3),
        "cpu_seconds": round(report.cpu_seconds, 3),
        "peak_bytes": report.peak,
        "size_bytes": report.size,
        "path": None if report.path is None else str(report.path),
        "archs": list(report.archs),
        "compiled": report.compiled,
        "reused": report.reused,
        "files": [
            {
                "source": each.source,
                "reused": each.reused,
                "seconds": each.figures.seconds if each.figures else None,
                "cpu_seconds": each.figures.cpu_seconds if each.figures else None,
                "peak_bytes": each.figures.peak if each.figures else None,
                "log": None if each.log is None else str(each.log),
            }
            for each in report.files
        ],
        "warnings": list(report.warnings),
        "error": None if report.error is None else str(report.error),
    }


def _relative(path: Path, project: Path) -> str:
    return path.relative_to(project).as_posix() if path.is_relative_to(project) else str(path)
