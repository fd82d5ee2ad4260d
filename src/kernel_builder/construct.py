"""The story of one variant: environment → compile → package → check → import → install."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_builder.archs import parse_capability, sort_capabilities
from kernel_builder.check.variant import check_variant
from kernel_builder.compile import NOTHING, Artifact, compile_library
from kernel_builder.depends import describe_depends
from kernel_builder.environment import Environment, prepare_environment
from kernel_builder.errors import CheckError, ProjectError
from kernel_builder.flags import list_left_out
from kernel_builder.job import Job
from kernel_builder.op_check import check_ops
from kernel_builder.package import (
    describe_testing,
    install_variant,
    refuse_obstacle,
    remove_leftovers,
    write_variant,
)
from kernel_builder.per_torch_check import check_parts, name_part
from kernel_builder.planned import VariantBuild
from kernel_builder.report import Outcome, VariantReport
from kernel_builder.sandbox import Sandbox, choose_sandbox
from kernel_builder.state import Record, digest_directory, write_record
from kernel_builder.toolchain.cuda import describe_toolkit
from kernel_builder.tvm_ffi_check import check_functions
from kernel_spec.backend import BackendKind
from kernel_spec.binary import read_device_code


def construct_variant(job: Job, inputs: str) -> VariantReport:
    """Build a variant, and put it in the place of what was there once all checks have passed.

    Args:
        job: the variant.
        inputs: the fingerprint of everything that goes in, which is recorded.

    Raises:
        BuilderError, ProjectError: why there is none; what was there before stays.
    """
    job.reporter.begin(job.name)
    refuse_obstacle(job.target)
    sandbox = choose_sandbox(job.settings)
    scratch = _begin_run(job)
    environment, artifact = None, NOTHING
    # All that is fetched comes first: what cannot be had is known before anything is compiled.
    own = [
        prepare_environment(each, job.settings, on_fetch=job.tell_fetched)
        for each in job.build.per_torch
    ]
    if job.build.units:
        environment = prepare_environment(job.build, job.settings, on_fetch=job.tell_fetched)
        artifact = compile_library(job, job.build, environment, work=scratch, sandbox=sandbox)
    parts = _compile_parts(job, own, scratch, sandbox)
    made = scratch / "variant" / job.name
    write_variant(
        job.project,
        job.build,
        artifact.library,
        parts=[each.library for each in parts if each.library is not None],
        provenance=job.provenance,
        target=made,
        extension=_describe_contents(job.build, environment),
    )
    _refuse_mixture(job, scratch, made)
    findings = check_variant(made, settings=job.settings)
    if findings:
        raise CheckError(job.name, findings)
    unproved = check_parts(job, environment, own, scratch)
    if environment is not None and job.build.tvm_ffi is not None:
        unproved += check_functions(
            made, job.build, environment, settings=job.settings, sandbox=sandbox
        )
    else:
        unproved += check_ops(
            made,
            job.build,
            environment,
            stage=scratch / "src",
            twin=artifact.twin,
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
        path=job.target,
        size=size,
        files=tuple(file for each in (artifact, *parts) for file in each.files),
        archs=_read_archs(job.build, artifact.library),
        warnings=(*(text for each in (artifact, *parts) for text in each.warnings), *unproved),
        notes=(
            sandbox.note,
            *(note for each in (artifact, *parts) for note in each.notes),
            *_describe_left_out(job.build, environment),
        ),
    )


def _describe_contents(build: VariantBuild, environment: Environment | None) -> dict[str, Any]:
    """Return what ``metadata.json`` says under our own key."""
    found = describe_testing(build)
    if environment is not None:
        found |= describe_depends(environment.depends, tvm_ffi=build.tvm_ffi is not None)
        found |= describe_toolkit(environment.cuda)
    return found


def _describe_left_out(build: VariantBuild, environment: Environment | None) -> tuple[str, ...]:
    if environment is None or environment.cuda is None:
        return ()
    return tuple(
        f"{build.variant}: nvcc {environment.cuda.version} does not know {flag}, which changes no "
        "result; built without it"
        for flag in list_left_out(build, environment)
    )


def _compile_parts(
    job: Job, environments: Sequence[Environment], scratch: Path, sandbox: Sandbox
) -> list[Artifact]:
    """Compile the per-torch libraries, each against the pinned headers of its torch."""
    artifacts = []
    for part, environment in zip(job.build.per_torch, environments, strict=True):
        artifact = compile_library(
            job, part, environment, work=scratch / name_part(part), sandbox=sandbox
        )
        files = tuple(
            replace(each, source=f"{each.source} (torch {part.release})") for each in artifact.files
        )
        artifacts.append(replace(artifact, files=files))
    return artifacts


def _refuse_mixture(job: Job, scratch: Path, made: Path) -> None:
    """Refuse a variant of files that changed after its id was made of them.

    Raises:
        ProjectError: naming each.
    """
    build = job.build
    planned = {file.path: file.sha256 for file in (*job.sources.listed, *job.sources.extension)}
    module = f"{build.extension}/{build.module}"
    copies = [(f"{module}/{path}", made / path) for path in build.package]
    for each in (build, *build.per_torch):
        stage = (scratch / name_part(each) if each.is_part else scratch) / "src"
        sources = (*(unit.source for unit in each.units), *each.headers)
        copies += [(path, stage / path) for path in sources]
    changed = {
        path
        for path, place in copies
        if hashlib.sha256(place.read_bytes()).hexdigest() != planned[path]
    }
    if changed:
        raise ProjectError(
            f"{job.name}: files changed while it was built: {', '.join(sorted(changed))}; build again"
        )


def _begin_run(job: Job) -> Path:
    """Make the directory of this run; those of earlier runs go, their logs with them.

    Each run has its own: a compiler that outlived a killed build cannot write into a later one.
    """
    for old in job.work.glob("run-*"):
        shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="run-", dir=job.work))


def _read_archs(build: VariantBuild, library: Path | None) -> tuple[str, ...]:
    """Read the architectures that a CUDA library really has code for."""
    if library is None or build.backend is not BackendKind.CUDA:
        return ()
    images = read_device_code(library)
    ptx = {image.arch for image in images if image.kind == "ptx"}
    found = (parse_capability(image.arch) for image in images)
    names = [str(each) for each in sort_capabilities(each for each in found if each is not None)]
    return tuple(f"{name}+PTX" if name in ptx else name for name in names)
