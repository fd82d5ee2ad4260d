"""What came of a build: one value, and its text for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_builder.plan import SkippedBackend
from kernel_spec.errors import KernelError


class Outcome(StrEnum):
    """What became of a variant."""

    BUILT = "built"
    UP_TO_DATE = "up to date"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantReport:
    """What became of one variant.

    Attributes:
        variant: its name.
        outcome: what became of it.
        seconds: how long that took.
        path: its directory; None where it failed.
        size: the bytes of its files.
        compiled: how many files were compiled.
        reused: how many objects came from the cache.
        warnings: what compilers and checks said that is no fault.
        notes: what is to be said once for all variants.
        error: why it failed.
    """

    variant: str
    outcome: Outcome
    seconds: float
    path: Path | None = None
    size: int = 0
    compiled: int = 0
    reused: int = 0
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    error: KernelError | None = None


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
    """Write a report: errors first, then a line for each variant and each skipped backend."""
    lines = [f"note: {note}" for note in report.notes]
    for each in report.variants:
        lines += [f"{each.variant}: warning: {warning}" for warning in each.warnings]
    for each in report.failed:
        lines += [str(each.error), ""]
    lines += [_format_variant(each, report.project) for each in report.variants]
    lines += [str(skipped) for skipped in report.skipped]
    if not report.variants:
        lines.append("nothing can be built here")
    return "\n".join(lines)


def _format_variant(report: VariantReport, project: Path) -> str:
    words = [report.variant, f"{report.outcome.value:<10}", f"{report.seconds:6.1f} s"]
    if report.path is not None:
        words.append(_format_size(report.size))
        words.append(_relative(report.path, project))
    if report.outcome is Outcome.BUILT and report.compiled + report.reused:
        words.append(f"({report.compiled} compiled, {report.reused} from the cache)")
    return "  ".join(words)


def _relative(path: Path, project: Path) -> str:
    return path.relative_to(project).as_posix() if path.is_relative_to(project) else str(path)


def _format_size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1_000_000 else f"{size / 1e3:.0f} kB"
