"""The story of a build: ``build.toml`` → plan → compile → check → package → import → report."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from kernel_builder.archs import parse_capability, sort_capabilities
from kernel_builder.check.variant import check_variant
from kernel_builder.compile import Artifact, compile_variant
from kernel_builder.config.read import read_build
from kernel_builder.depends import describe_depends
from kernel_builder.environment import Environment, detect_host, prepare_environment
from kernel_builder.errors import (
    CheckError,
    ProjectError,
    StorageError,
    ToolchainUnavailableError,
)
from kernel_builder.flags import list_left_out
from kernel_builder.locking import check_lock
from kernel_builder.op_check import check_ops
from kernel_builder.package import (
    describe_testing,
    install_variant,
    remove_leftovers,
    write_variant,
)
from kernel_builder.plan import plan
from kernel_builder.planned import Selection, SkippedBackend, VariantBuild
from kernel_builder.progress import Reporter, SilentReporter
from kernel_builder.provenance import describe_origin
from kernel_builder.report import Outcome, Report, VariantReport
from kernel_builder.sandbox import Sandbox, choose_sandbox
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import SourceSet, read_sources
from kernel_builder.state import Record, digest_directory, find_record, fingerprint, write_record
from kernel_builder.tvm_ffi_check import check_functions
from kernel_spec.binary import read_device_code
from kernel_spec.errors import KernelError
from kernel_spec.metadata import Provenance

OUTPUT = "build"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Job:
    """One variant on its way."""

    project: Path
    build: VariantBuild
    sources: SourceSet
    provenance: Provenance
    settings: Settings
    jobs: int | None
    begin: Callable[[str], None]
    on_step: Callable[[int, int, str], None]
    on_fetch: Callable[[str, int, int], None]

    @property
    def name(self) -> str:
        return str(self.build.variant)

    @property
    def target(self) -> Path:
        return self.project / OUTPUT / self.name

    @property
    def work(self) -> Path:
        return work_directory(self.project, self.settings) / self.name


def work_directory(project: Path, settings: Settings) -> Path:
    """Return where the builds of a project keep their files and logs, outside the project."""
    place = project.resolve()
    key = hashlib.sha256(os.fsencode(place)).hexdigest()[:16]
    # For people only: a name with a line break would be none for Ninja, and one may be too long.
    name = re.sub(r"[^A-Za-z0-9._-]", "_", place.name)[:60]
    return settings.cache / "work" / f"{name}-{key}"


def build_project(
    project: Path,
    *,
    selection: Selection | None = None,
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
        selection: what to build; None: everything.
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
        LockError: a build would use something else than what was locked.
    """
    settings = settings or read_settings()
    reporter = reporter or SilentReporter()
    build = read_build(project)
    sources = read_sources(project, build)
    made = plan(build, sources, host=detect_host(settings), selection=selection or Selection())
    told = check_lock(project, made.variants, settings, strict=locked)
    provenance = provenance or describe_origin(project, sources, settings)
    reports = []
    skipped = list(made.skipped)
    for variant in made.variants:
        name = str(variant.variant)

        def on_step(done: int, total: int, what: str, name: str = name) -> None:
            reporter.step(name, done, total, what)

        def on_fetch(what: str, done: int, total: int, name: str = name) -> None:
            reporter.fetch(name, what, done, total)

        job = _Job(
            project=project,
            build=variant,
            sources=sources,
            provenance=provenance,
            settings=settings,
            jobs=jobs,
            begin=reporter.begin,
            on_step=on_step,
            on_fetch=on_fetch,
        )
        report = _build_or_fail(job, force=force)
        wanted = selection is not None and (selection.backends or selection.variants)
        if isinstance(report.error, ToolchainUnavailableError) and not wanted:
            skipped.append(SkippedBackend(backend=variant.backend, reason=str(report.error)))
            continue
        reports.append(report)
        if report.outcome is not Outcome.UP_TO_DATE:
            reporter.end(name, report.outcome.value, report.seconds)
    notes = (*made.notes, *told, *(note for report in reports for note in report.notes))
    return Report(
        project=project,
        variants=tuple(reports),
        skipped=tuple(skipped),
        notes=tuple(dict.fromkeys(notes)),
    )


def _build_or_fail(job: _Job, *, force: bool) -> VariantReport:
    start = time.monotonic()
    try:
        job.work.mkdir(parents=True, exist_ok=True)
        with FileLock(job.work / "lock"):
            return _build_variant(job, start, force=force)
    except KernelError as err:
        error: KernelError = err
    except OSError as err:
        error = _describe_storage(job, err)
        error.__cause__ = err
    return VariantReport(
        variant=job.name,
        outcome=Outcome.FAILED,
        seconds=time.monotonic() - start,
        error=error,
    )


def _describe_storage(job: _Job, err: OSError) -> StorageError:
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


def _build_variant(job: _Job, start: float, *, force: bool) -> VariantReport:
    inputs = fingerprint(job.build, job.provenance, job.settings)
    size = None if force else _find_current(job, inputs)
    if size is not None:
        return VariantReport(
            variant=job.name,
            outcome=Outcome.UP_TO_DATE,
            seconds=time.monotonic() - start,
            path=job.target,
            size=size,
        )
    job.begin(job.name)
    sandbox = choose_sandbox(job.settings)
    scratch = _begin_run(job)
    environment = None
    if job.build.units:
        environment = prepare_environment(job.build, job.settings, on_fetch=job.on_fetch)
    artifact = None if environment is None else _compile(job, environment, scratch, sandbox)
    made = scratch / "variant" / job.name
    write_variant(
        job.project,
        job.build,
        artifact.library if artifact else None,
        provenance=job.provenance,
        target=made,
        extension={
            **describe_depends(
                environment.depends if environment else (),
                tvm_ffi=job.build.tvm_ffi is not None,
            ),
            **describe_testing(job.build),
        },
    )
    _refuse_mixture(job, scratch / "src", made)
    findings = check_variant(made)
    if findings:
        raise CheckError(job.name, findings)
    if environment is not None and job.build.tvm_ffi is not None:
        unproved = check_functions(
            made, job.build, environment, settings=job.settings, sandbox=sandbox
        )
    else:
        unproved = check_ops(
            made,
            job.build,
            environment,
            stage=scratch / "src",
            twin=artifact.twin if artifact else None,
            settings=job.settings,
            sandbox=sandbox,
        )
    digest, size = digest_directory(made)
    remove_leftovers(job.target)
    install_variant(made, job.target)
    write_record(job.work / "state.json", Record(inputs=inputs, digest=digest))
    return VariantReport(
        variant=job.name,
        outcome=Outcome.BUILT,
        seconds=time.monotonic() - start,
        path=job.target,
        size=size,
        files=artifact.files if artifact else (),
        archs=_read_archs(artifact.library)
        if artifact and environment and environment.cuda
        else (),
        warnings=(*(artifact.warnings if artifact else ()), *unproved),
        notes=(sandbox.note, *_describe_left_out(job.build, environment)),
    )


def _describe_left_out(build: VariantBuild, environment: Environment | None) -> tuple[str, ...]:
    if environment is None or environment.cuda is None:
        return ()
    return tuple(
        f"{build.variant}: nvcc {environment.cuda.version} does not know {flag}, which changes no "
        "result; built without it"
        for flag in list_left_out(build, environment)
    )


def _refuse_mixture(job: _Job, stage: Path, made: Path) -> None:
    """Refuse a variant of files that changed after its id was made of them.

    Raises:
        ProjectError: naming each.
    """
    build = job.build
    planned = {file.path: file.sha256 for file in (*job.sources.listed, *job.sources.extension)}
    module = f"{build.extension}/{build.module}"
    copies = {
        path: stage / path for path in (*(unit.source for unit in build.units), *build.headers)
    }
    copies = {path: place for path, place in copies.items() if build.units}
    copies |= {f"{module}/{path}": made / path for path in build.package}
    changed = [
        path
        for path, place in copies.items()
        if hashlib.sha256(place.read_bytes()).hexdigest() != planned[path]
    ]
    if changed:
        raise ProjectError(
            f"{job.name}: files changed while it was built: {', '.join(sorted(changed))}; build again"
        )


def _find_current(job: _Job, inputs: str) -> int | None:
    """Return the size of the variant where it is what these inputs gave, else None."""
    record = find_record(job.work / "state.json")
    if record is None or record.inputs != inputs or not job.target.is_dir():
        return None
    digest, size = digest_directory(job.target)
    return size if digest == record.digest else None


def _begin_run(job: _Job) -> Path:
    """Make the directory of this run; those of earlier runs go, their logs with them.

    Each run has its own: a compiler that outlived a killed build cannot write into a later one.
    """
    for old in job.work.glob("run-*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=job.work))


def _read_archs(library: Path) -> tuple[str, ...]:
    """Read the architectures that a CUDA library really has code for."""
    images = read_device_code(library)
    ptx = {image.arch for image in images if image.kind == "ptx"}
    found = (parse_capability(image.arch) for image in images)
    names = [str(each) for each in sort_capabilities(each for each in found if each is not None)]
    return tuple(f"{name}+PTX" if name in ptx else name for name in names)


def _compile(job: _Job, environment: Environment, scratch: Path, sandbox: Sandbox) -> Artifact:
    return compile_variant(
        job.project,
        job.build,
        environment,
        work=scratch,
        settings=job.settings,
        sandbox=sandbox,
        jobs=job.jobs,
        on_step=job.on_step,
    )
