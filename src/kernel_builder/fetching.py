"""The story of a fetch: plan → what its builds would fetch → each of them here, for builds without a network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.config.read import read_build
from kernel_builder.depends import Origin, check_local_sources, fetch_dependency, find_origins
from kernel_builder.environment import detect_host, fetch_pinned, find_pinned
from kernel_builder.errors import SelectionError, StorageError, ToolchainError
from kernel_builder.plan import plan
from kernel_builder.planned import EVERYTHING, Selection, SkippedBackend, VariantBuild
from kernel_builder.progress import Reporter, SilentReporter
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import read_sources
from kernel_builder.toolchain.cuda import fetch_cuda, name_cuda
from kernel_builder.toolchain.pip_watch import OnFetch
from kernel_builder.toolchain.torch_headers import name_headers
from kernel_builder.toolchain.tvm_ffi import get_tvm_ffi, name_tvm_ffi
from kernel_spec.backend import BackendKind
from kernel_spec.errors import KernelError


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Something that builds fetch.

    Attributes:
        name: what it is, with its version.
        variants: the variants that are built with it.
        get: brings it here, where it is not, and returns the directories that it is in.
    """

    name: str
    variants: tuple[str, ...]
    get: Callable[[OnFetch], tuple[Path, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """What became of something that builds fetch.

    Attributes:
        name: what it is, with its version.
        variants: the variants that are built with it.
        places: the directories that it is in; none: it is not here.
        error: why it is not here.
    """

    name: str
    variants: tuple[str, ...]
    places: tuple[Path, ...] = ()
    error: KernelError | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchReport:
    """What came of fetching all that the builds of a project fetch.

    Attributes:
        inputs: each thing, in the order in which builds ask for it.
        skipped: backends that cannot be built here, and so were fetched nothing for.
    """

    inputs: tuple[Fetched, ...]
    skipped: tuple[SkippedBackend, ...]

    @property
    def errors(self) -> tuple[KernelError, ...]:
        """Why some are not here."""
        return tuple(each.error for each in self.inputs if each.error is not None)


def fetch_project(
    project: Path,
    *,
    selection: Selection = EVERYTHING,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
) -> FetchReport:
    """Bring here all that building the variants of a project would fetch, and build nothing.

    What cannot be had is part of the report; the rest is fetched all the same.

    Args:
        project: the directory that holds ``build.toml``.
        selection: the variants that are to be built later.
        settings: what the environment says; None: read it.
        reporter: who is told how far it is.

    Raises:
        ConfigError, ProjectError, SelectionError, UsageError: as a build of the project.
        SelectionError: nothing of it can be built here.
    """
    settings = settings or read_settings()
    reporter = reporter or SilentReporter()
    build = read_build(project)
    check_local_sources(build, settings)
    sources = read_sources(project, build)
    made = plan(build, sources, host=detect_host(settings), selection=selection)
    if not made.variants:
        lines = "".join(f"\n  {each}" for each in made.skipped)
        raise SelectionError(f"{project}: nothing of it can be built here{lines}")
    wanted = list_wanted(made.variants, settings)
    return FetchReport(
        inputs=tuple(_fetch(each, reporter) for each in wanted), skipped=made.skipped
    )


def list_wanted(variants: Iterable[VariantBuild], settings: Settings) -> tuple[Wanted, ...]:
    """Return what building variants fetches, each once; fetches nothing.

    What comes from nowhere is part of it, since the rest is fetched all the same: its ``get`` raises.
    """
    found: dict[str, Wanted] = {}
    for variant in variants:
        for each in _list_of(variant, settings):
            before = found.setdefault(each.name, replace(each, variants=()))
            found[each.name] = replace(before, variants=(*before.variants, str(variant.variant)))
    return tuple(found.values())


def _list_of(variant: VariantBuild, settings: Settings) -> Iterator[Wanted]:
    """Yield what a variant is built with that is no part of the system: as ``prepare_environment`` gets it."""
    if not variant.units:
        return
    if variant.backend is BackendKind.CUDA and settings.cuda_home is None:
        yield _want_cuda(variant, settings)
    for each in (variant, *variant.per_torch):
        if each.is_pinned:
            yield _want_headers(each, settings)
    if variant.tvm_ffi is not None:
        yield Wanted(
            name=name_tvm_ffi(),
            variants=(),
            get=lambda on_fetch: (get_tvm_ffi(settings, on_fetch=on_fetch).root,),
        )
    for name in sorted({name for each in (variant, *variant.per_torch) for name in each.depends}):
        try:
            origins = find_origins({name}, variant.sources, settings)
        except ToolchainError as err:
            yield _want_in_vain(name, err)
            continue
        yield from (_want_dependency(each, settings) for each in origins if each.local is None)


def _want_in_vain(name: str, fault: ToolchainError) -> Wanted:
    def get(_: OnFetch) -> tuple[Path, ...]:
        raise fault

    return Wanted(name=name, variants=(), get=get)


def _want_cuda(variant: VariantBuild, settings: Settings) -> Wanted:
    try:
        name = name_cuda(settings, variant.toolkit)
    except ToolchainError as err:
        return _want_in_vain(f"CUDA {variant.toolkit or ''}".rstrip(), err)
    return Wanted(
        name=name,
        variants=(),
        get=lambda on_fetch: fetch_cuda(settings, variant.toolkit, on_fetch=on_fetch),
    )


def _want_headers(part: VariantBuild, settings: Settings) -> Wanted:
    return Wanted(
        name=name_headers(find_pinned(part)),
        variants=(),
        get=lambda on_fetch: (fetch_pinned(part, settings, on_fetch).root,),
    )


def _want_dependency(origin: Origin, settings: Settings) -> Wanted:
    return Wanted(
        name=f"{origin.name} {origin.version}".rstrip(),
        variants=(),
        get=lambda _: (fetch_dependency(origin, settings).root,),
    )


def _fetch(wanted: Wanted, reporter: Reporter) -> Fetched:
    start = time.monotonic()
    begun = False

    def tell(what: str, done: int, total: int) -> None:
        nonlocal begun
        if not begun:
            begun = True
            reporter.begin(wanted.name, "fetching")
        reporter.fetch(wanted.name, what, done, total)

    done = Fetched(name=wanted.name, variants=wanted.variants)
    try:
        done = replace(done, places=wanted.get(tell))
    except KernelError as err:
        done = replace(done, error=err)
    except OSError as err:
        place = f"{err.filename}: " if err.filename else ""
        done = replace(done, error=StorageError(f"{wanted.name}: {place}{err.strerror}"))
    if begun:
        outcome = "failed" if done.error else "fetched"
        reporter.end(wanted.name, outcome, time.monotonic() - start)
    return done
