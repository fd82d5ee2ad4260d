"""The one variant that a loader's system lacks, built from sources that a repository carries."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from kernel_builder.config.read import read_build
from kernel_builder.environment import detect_host
from kernel_builder.errors import BuilderError, SelectionError
from kernel_builder.job import work_directory
from kernel_builder.pipeline import build_project
from kernel_builder.plan import plan
from kernel_builder.planned import Selection, VariantBuild
from kernel_builder.provenance import describe_builder
from kernel_builder.report import VariantReport
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import read_sources
from kernel_builder.toolchain.cuda import list_pinned
from kernel_spec.backend import BackendKind
from kernel_spec.compat import Rejected, decide
from kernel_spec.system import System
from kernels.log import logger


def build_fitting(project: Path, system: System, backend: BackendKind | None = None) -> Path:
    """Build the best variant of a project that fits a system, and no other.

    Of its per-torch libraries it has the one for the system's torch, if that can be built. CUDA code
    is compiled for the visible devices alone, with the pinned toolkit that torch's version of CUDA
    takes. What the build keeps for people who look into a failure goes when it succeeds.

    Args:
        project: the directory that holds ``build.toml``.
        system: what the variant must fit, with its devices.
        backend: choose for this backend instead of the system's.

    Returns:
        The variant's directory, below ``project``.

    Raises:
        ConfigError, ProjectError: the sources are no project that can be built.
        SelectionError: no variant of them fits; says why not. Nothing was compiled.
        BuilderError: as ``pipeline.build_project`` reports it.
    """
    settings = _for_toolkit(read_settings(), system)
    archs = tuple(sorted({device.arch for device in system.devices}))
    wanted = Selection(
        archs=archs if system.backend.kind is BackendKind.CUDA else (),
        per_torch=frozenset() if system.torch is None else frozenset({system.torch.release}),
    )
    chosen = _choose(project, system, backend, wanted, settings)
    wanted = replace(wanted, variants=frozenset({str(chosen.variant)}))
    made = _build(project, wanted, settings)
    if isinstance(made.error, BuilderError) and chosen.per_torch:
        # What is wrong with the rest is told by the second try.
        logger().warning(
            "%s is built without its library for torch %s, which it works without: %s",
            chosen.variant,
            chosen.per_torch[0].release,
            made.error,
        )
        made = _build(project, replace(wanted, per_torch=frozenset()), settings)
    if made.error is not None:
        raise made.error
    assert made.path is not None
    shutil.rmtree(work_directory(project, settings), ignore_errors=True)
    return made.path


def _build(project: Path, selection: Selection, settings: Settings) -> VariantReport:
    report = build_project(
        project, selection=selection, provenance=describe_builder(), settings=settings
    )
    [made] = report.variants
    return made


def _choose(
    project: Path,
    system: System,
    backend: BackendKind | None,
    wanted: Selection,
    settings: Settings,
) -> VariantBuild:
    build = read_build(project)
    made = plan(build, read_sources(project, build), host=detect_host(settings), selection=wanted)
    decisions = decide(system, [str(each.variant) for each in made.variants], backend=backend)
    first = next(iter(decisions), None)
    if first is None or isinstance(first, Rejected):
        lines = [
            f"  {each.name}: {each.reason}" for each in decisions if isinstance(each, Rejected)
        ]
        lines += [f"  {each.backend}: {each.reason}" for each in made.skipped]
        raise SelectionError(
            "\n".join(["no variant that can be built here fits this system:", *lines])
        )
    return next(each for each in made.variants if str(each.variant) == first.name)


def _for_toolkit(settings: Settings, system: System) -> Settings:
    """Take the newest pinned CUDA toolkit that fits torch's version of CUDA, where one does."""
    offered = system.backend
    if offered.kind is not BackendKind.CUDA or offered.version is None:
        return settings
    fitting = [
        each
        for each in list_pinned(system.cpu)
        if each.major == offered.version.major and each <= offered.version
    ]
    return replace(settings, cuda_versions=(max(fitting),)) if fitting else settings
