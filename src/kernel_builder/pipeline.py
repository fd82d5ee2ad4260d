"""The story of a build: ``build.toml`` → plan → each variant: up to date, or constructed → report."""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from pathlib import Path

from kernel_builder.config.read import read_build
from kernel_builder.depends import check_local_sources
from kernel_builder.environment import detect_host
from kernel_builder.errors import StorageError, ToolchainUnavailableError
from kernel_builder.job import Job
from kernel_builder.kept import hold
from kernel_builder.locking import check_lock
from kernel_builder.plan import plan
from kernel_builder.planned import EVERYTHING, Selection, SkippedBackend
from kernel_builder.progress import Reporter, SilentReporter
from kernel_builder.provenance import describe_origin
from kernel_builder.report import Outcome, Report, VariantReport
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import read_sources
from kernel_builder.state import digest_directory, find_record, fingerprint
from kernel_spec.errors import KernelError
from kernel_spec.provenance import Provenance


def build_project(
    project: Path,
    *,
    selection: Selection = EVERYTHING,
    jobs: int | None = None,
    force: bool = False,
    locked: bool = False,
    provenance: Provenance | None = None,
    reporter: Reporter | None = None,
    settings: Settings | None = None,
) -> Report:
    """Build the variants of a project into ``build/<variant>/``.

    A variant that fails is part of the report and leaves what was there before; the others are
    built all the same.

    Args:
        project: the directory that holds ``build.toml``.
        selection: what to build.
        jobs: how many compilers run at once; None: as many as CPUs and memory allow.
        force: build even what is up to date.
        locked: there must be a lock, and everything must be as it says.
        provenance: what the variants say of their origin; None: what git says of the project.
        reporter: who is told how far it is.
        settings: what the environment says; None: read it.

    Raises:
        ConfigError: with every fault of ``build.toml``.
        ProjectError: the directory is no project, or lacks a file.
        SelectionError: the project has no such backend or variant.
        UsageError: a local source is given that no component depends on.
        LockError: a build would use something else than what was locked.
    """
    settings = settings or read_settings()
    reporter = reporter or SilentReporter()
    build = read_build(project)
    check_local_sources(build, settings)
    sources = read_sources(project, build)
    made = plan(build, sources, host=detect_host(settings), selection=selection)
    told = check_lock(project, made.variants, settings, strict=locked)
    provenance = provenance or describe_origin(project, sources, settings)
    reports = []
    skipped = list(made.skipped)
    for variant in made.variants:
        job = Job(
            project=project,
            build=variant,
            sources=sources,
            provenance=provenance,
            settings=settings,
            jobs=jobs,
            force=force,
            reporter=reporter,
        )
        start = time.monotonic()
        report = replace(_build_or_fail(job), seconds=time.monotonic() - start)
        if isinstance(report.error, ToolchainUnavailableError) and not selection.names_some:
            skipped.append(SkippedBackend(backend=variant.backend, reason=str(report.error)))
            continue
        reports.append(report)
        if report.outcome is not Outcome.UP_TO_DATE:
            reporter.end(job.name, report.outcome.value, report.seconds)
    notes = (*made.notes, *told, *(note for report in reports for note in report.notes))
    return Report(
        project=project,
        variants=tuple(reports),
        skipped=tuple(skipped),
        notes=tuple(dict.fromkeys(notes)),
    )


def _build_or_fail(job: Job) -> VariantReport:
    try:
        inputs = fingerprint(job.build, job.provenance, job.settings)
        return _find_current(job, inputs) or _build_alone(job, inputs)
    except KernelError as err:
        return VariantReport(variant=job.name, outcome=Outcome.FAILED, error=err)
    except OSError as err:
        error = _describe_storage(job, err)
        error.__cause__ = err
        return VariantReport(variant=job.name, outcome=Outcome.FAILED, error=error)


def _build_alone(job: Job, inputs: str) -> VariantReport:
    """Build a variant while no other process does, unless one has done it meanwhile."""
    # What only building needs takes longer to import than it takes to see that nothing is to do.
    from kernel_builder.construct import construct_variant

    def tell_waiting() -> None:
        job.reporter.begin(job.name, "another build of it runs; waiting for it")

    start = time.monotonic()
    job.work.mkdir(parents=True, exist_ok=True)
    with hold(job.work / "lock", tell_waiting):
        current = _find_current(job, inputs)
        if current is None:
            return construct_variant(job, inputs)
    job.reporter.end(job.name, current.outcome.value, time.monotonic() - start)
    return current


def _describe_storage(job: Job, err: OSError) -> StorageError:
    place = Path(err.filename) if err.filename else job.project
    cache = job.settings.cache
    what = f"{job.name}: {place}: {err.strerror}"
    if err.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"{what}; make room there, and build again")
    if place.is_relative_to(cache) or cache.is_relative_to(place):
        return StorageError(
            f"{what}; the builder keeps its files in {cache}: "
            "set XDG_CACHE_HOME to a directory that can be written"
        )
    if err.errno in (errno.EEXIST, errno.ENOTDIR):
        return StorageError(
            f"{what}; a directory is to be there: move the file away, and build again"
        )
    return StorageError(f"{what}; make it readable and writable for this user, and build again")


def _find_current(job: Job, inputs: str) -> VariantReport | None:
    """Report a variant that is what these inputs gave, or return None."""
    record = find_record(job.work / "state.json")
    if job.force or record is None or record.inputs != inputs or not job.target.is_dir():
        return None
    digest, size = digest_directory(job.target)
    if digest != record.digest:
        return None
    return VariantReport(variant=job.name, outcome=Outcome.UP_TO_DATE, path=job.target, size=size)
