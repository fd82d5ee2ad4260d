"""Which torch a shell has, and which variant it tests: one that this torch loads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernel_builder.config.model import Build
from kernel_builder.environment import detect_host
from kernel_builder.errors import SelectionError
from kernel_builder.plan import plan
from kernel_builder.planned import Selection, VariantBuild
from kernel_builder.settings import Settings
from kernel_builder.sources import read_sources
from kernel_builder.toolchain.torch import find_torch
from kernel_builder.toolchain.torch_releases import find_release, read_torch_releases
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.framework import Torch, TorchStableAbi
from kernel_spec.system import TorchBuild, parse_torch_build
from kernel_spec.variant import ArchVariant, Variant
from kernel_spec.version import MajorMinor, parse_major_minor

_TORCH = re.compile(r"\d+(\.\d+){1,2}([a-z0-9.+]*)", re.ASCII)


def choose_torch(variant: Variant | None, stated: str | None, installed: TorchBuild | None) -> str:
    """Choose the torch of a shell, as pip reads it.

    It is the one that is stated; else the builder's own where the variant fits it; else one that
    the variant fits.

    Raises:
        SelectionError: what is stated is no version, or the variant does not fit it.
    """
    if stated is not None and not _TORCH.fullmatch(stated):
        raise SelectionError(f"--torch {stated}: expected a version such as 2.13.0")
    framework = variant.framework if isinstance(variant, ArchVariant) else None
    if stated is not None:
        if not _fits(framework, parse_major_minor(stated)):
            raise SelectionError(f"--torch {stated}: {variant} cannot be loaded by that torch")
        return f"torch=={stated}"
    if installed is not None and not installed.prerelease and _fits(framework, installed.release):
        return f"torch=={installed.version.partition('+')[0]}"
    match framework:
        case Torch(version):
            return f"torch=={version}.*"
        case TorchStableAbi(version):
            return f"torch>={version}"
        case _:
            return "torch"


def _fits(framework: object, release: MajorMinor) -> bool:
    match framework:
        case Torch(version):
            return version == release
        case TorchStableAbi(version):
            return version <= release
        case _:
            return True


def foresee_torch(requirement: str) -> TorchBuild | None:
    """Return the torch that a requirement brings, or None where only pip can tell."""
    version = requirement.partition("==")[2].removesuffix(".*")
    return parse_torch_build(version) if version else None


def choose_variant(
    project: Path,
    build: Build,
    settings: Settings,
    *,
    name: str | None,
    backends: Iterable[BackendKind],
    torch: TorchBuild | None,
) -> VariantBuild:
    """Choose the variant to test: the one that is named, else one of the backends, the first first.

    Args:
        project: its directory.
        build: what its ``build.toml`` says.
        settings: where toolchains are.
        name: the name of the variant, or None.
        backends: which will do.
        torch: the torch that is to load it; None: that is not known yet.

    Raises:
        SelectionError: there is none that this torch loads, or none that can be built here.
    """
    kinds = tuple(backends)
    host = detect_host(settings)
    # What is built is for the torch that loads it, which need not be the one that is installed here.
    host = replace(host, torch=torch or host.torch)
    selection = Selection() if name is None else Selection(variants=frozenset({name}))
    made = plan(build, read_sources(project, build), host=host, selection=selection)
    found = [
        each for kind in kinds for each in made.variants if name is not None or each.backend is kind
    ]
    for variant in found:
        release = find_pinned_release(variant)
        if release is None or find_release(host.cpu, release) is not None:
            return variant
    if found:
        have = ", ".join(str(each.release) for each in read_torch_releases(host.cpu))
        raise SelectionError(
            f"{found[0].variant}: the headers of that torch are not here and not pinned; expected "
            f"the torch that is installed here, or one of {have or 'none'}"
        )
    names = ", ".join(str(each.variant) for each in made.variants) or "none"
    lines = "".join(f"\n  {each}" for each in made.skipped)
    wanted = kinds[0].value
    raise SelectionError(f"no variant for {wanted} can be built here; found {names}{lines}")


def find_pinned_release(variant: VariantBuild) -> MajorMinor | None:
    """Return the release of torch whose pinned headers a variant needs, or None."""
    framework = variant.variant.framework if isinstance(variant.variant, ArchVariant) else None
    if not isinstance(framework, Torch):
        return None
    installed = find_torch()
    if installed is None or installed.build.prerelease:
        return framework.version
    return None if installed.build.release == framework.version else framework.version


def choose_toolkit(target: Backend | None, settings: Settings) -> Settings:
    """Let a variant that is named choose its pinned CUDA toolkit."""
    if target is None or target.kind is not BackendKind.CUDA or target.version is None:
        return settings
    if settings.cuda_home is not None:
        return settings
    return replace(settings, cuda_versions=(target.version,))
