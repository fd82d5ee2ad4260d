"""The story of a proof: published variant → its sources → build anew → compare every byte."""

from __future__ import annotations

import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kernel_builder.config.model import FILE_NAME
from kernel_builder.config.read import read_build
from kernel_builder.differences import Difference, compare_files
from kernel_builder.environment import choose_torches
from kernel_builder.errors import CommandError, ConfigError, RebuildError
from kernel_builder.git import run_git
from kernel_builder.job import OUTPUT
from kernel_builder.pipeline import build_project
from kernel_builder.plan import current_op_id
from kernel_builder.planned import Selection
from kernel_builder.progress import Reporter
from kernel_builder.proof import without_proof
from kernel_builder.provenance import describe_builder
from kernel_builder.published import Published, choose_variants, find_branch, read_published
from kernel_builder.remote import Remote
from kernel_builder.settings import Settings
from kernel_builder.sources import read_sources
from kernel_builder.toolchain.cuda import TOOLKIT, list_pinned
from kernel_builder.toolchain.cuda_home import find_files
from kernel_spec.backend import BackendKind
from kernel_spec.errors import KernelError
from kernel_spec.framework import Torch
from kernel_spec.metadata import FILE_NAME as METADATA
from kernel_spec.metadata import Metadata
from kernel_spec.names import RepoId
from kernel_spec.provenance import Provenance
from kernel_spec.variant import ArchVariant, parse_variant

_GIT_SECONDS = 600
# What a rebuild may take from earlier builds: it was fetched by hash. Objects and stubs it makes.
_FETCHED = ("toolchains", "sources", "inventory")


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What came of rebuilding one variant.

    Attributes:
        variant: its name.
        origin: which sources it was rebuilt from, in words.
        count: how many files were published.
        differences: the files that differ.
        notes: what explains a difference, or what was not proved.
        error: why it could not be rebuilt, or None.
    """

    variant: str
    origin: str
    count: int
    differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    error: KernelError | None = None

    @property
    def is_same(self) -> bool:
        """Whether every byte is the same."""
        return self.error is None and not self.differences


def verify_rebuild(
    repo: RepoId,
    remote: Remote,
    *,
    settings: Settings,
    revision: str | None = None,
    variants: frozenset[str] = frozenset(),
    project: Path | None = None,
    jobs: int | None = None,
    reporter: Reporter | None = None,
) -> tuple[Verdict, ...]:
    """Rebuild published variants from their sources, and compare every byte.

    Args:
        repo: the repository.
        remote: the hub.
        settings: what the environment says.
        revision: ``vN``, another branch, a tag or a commit; None: the highest version.
        variants: only these; empty: all that are published.
        project: the sources; None: the git repository and commit that each variant names.
        jobs: how many compilers run at once.
        reporter: who is told how far it is.

    Raises:
        UsageError: no such revision or variant.
        RebuildError: a published file is not what the hub's listing says, or says nothing of itself.
    """
    branch = find_branch(repo, remote, revision)
    verdicts = []
    for name in choose_variants(repo, branch, variants):
        published = read_published(repo, remote, branch, name)
        try:
            with _sources(published, project, settings) as (place, origin):
                verdict = _rebuild(
                    published, place, origin, settings=settings, jobs=jobs, reporter=reporter
                )
        except KernelError as err:
            verdict = Verdict(variant=name, origin="", count=len(published.files), error=err)
        verdicts.append(verdict)
    return tuple(verdicts)


@contextmanager
def _sources(
    published: Published, project: Path | None, settings: Settings
) -> Iterator[tuple[Path, str]]:
    """Give a copy of the sources, which a build may write to, and say where they are from.

    Raises:
        RebuildError: the variant names no sources, or they cannot be had.
    """
    with tempfile.TemporaryDirectory(prefix="rebuild-") as temporary:
        place = Path(temporary) / "project"
        if project is not None:
            shutil.copytree(project, place, ignore=_left_out, symlinks=True)
            yield place, str(project)
            return
        source, origin = published.metadata.source, published.metadata.provenance
        commit = None if origin is None else origin.kernel_commit
        if source is None or commit is None:
            lacking = "no source (general.source of build.toml)" if source is None else "no commit"
            raise RebuildError(
                f"{published.name} names {lacking}, so its sources cannot be fetched; give a checkout "
                "of them: --project DIR"
            )
        _clone(source, commit, place, settings)
        yield _find_project(place, published.metadata.name), f"{source} at {commit[:12]}"


def _left_out(directory: str, names: list[str]) -> list[str]:
    """Name what is no source: hidden files, environments among them, bytecode, what was built."""
    is_project = (Path(directory) / FILE_NAME).is_file()
    return [
        name
        for name in names
        if name.startswith(".") or name == "__pycache__" or (is_project and name == OUTPUT)
    ]


def _clone(source: str, commit: str, place: Path, settings: Settings) -> None:
    url = source.removeprefix("git+")
    fetch = partial(run_git, settings=settings, seconds=_GIT_SECONDS, network=True)
    try:
        fetch("clone", "--quiet", "--no-checkout", "--", url, place)
        fetch("checkout", "--quiet", "--detach", commit, place=place)
    except CommandError as err:
        said = err.finished.output.strip() or str(err)
        raise RebuildError(
            f"{url} at {commit} cannot be fetched: {said}; give a checkout of it: --project DIR"
        ) from err


def _find_project(root: Path, name: str) -> Path:
    """Find the project of a kernel in a repository, which may hold many.

    Raises:
        RebuildError: it holds none of that name, or several.
    """
    found = []
    for file in sorted(root.rglob(FILE_NAME)):
        try:
            if read_build(file.parent).general.name == name:
                found.append(file.parent)
        except ConfigError:
            continue
    if len(found) != 1:
        what = "no project" if not found else f"{len(found)} projects"
        raise RebuildError(f'the sources hold {what} of the name "{name}"; give it: --project DIR')
    return found[0]


def _rebuild(
    published: Published,
    project: Path,
    origin: str,
    *,
    settings: Settings,
    jobs: int | None,
    reporter: Reporter | None,
) -> Verdict:
    """Build a variant anew and compare it.

    Raises:
        RebuildError: the sources are others than those of the variant.
        KernelError: it cannot be built here.
    """
    metadata = published.metadata
    build = read_build(project)
    found = current_op_id(build, read_sources(project, build), metadata.backend)
    if found != metadata.id:
        raise RebuildError(
            f"{published.name} was built from other sources: it is {metadata.id}, and {origin} gives "
            f"{found}; take the sources that were published"
        )
    provenance = _adopt(metadata.provenance)
    with tempfile.TemporaryDirectory(prefix="rebuild-") as temporary:
        report = build_project(
            project,
            selection=Selection(variants=frozenset({published.name})),
            jobs=jobs,
            force=True,
            provenance=provenance,
            reporter=reporter,
            settings=choose_target(_fresh(settings, Path(temporary)), published.name),
        )
        for variant in report.variants:
            if variant.error is not None:
                raise variant.error
    root = project / OUTPUT / published.name
    rebuilt = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }
    # A signature is made after the build, by somebody's key.
    files = {path: data for path, data in published.files.items() if not path.endswith(".sigstore")}
    # So is a proof of the gate.
    files[METADATA] = without_proof(files[METADATA])
    differences = compare_files(files, rebuilt)
    return Verdict(
        variant=published.name,
        origin=origin,
        count=len(files),
        differences=differences,
        notes=_explain(metadata, provenance, report.notes) if differences else (),
    )


def _adopt(published: Provenance | None) -> Provenance:
    """Say of the rebuilt variant what the published one says of its commit.

    The id proves the sources, so a copy of them outside of git is as good as the commit.
    """
    own = describe_builder()
    if published is None:
        return own
    return replace(own, kernel_commit=published.kernel_commit, kernel_dirty=published.kernel_dirty)


def _explain(metadata: Metadata, provenance: Provenance, notes: tuple[str, ...]) -> tuple[str, ...]:
    made_by = metadata.provenance.builder_version if metadata.provenance else "an unknown builder"
    found = list(notes)
    if made_by != provenance.builder_version:
        found.insert(
            0, f"it was built by kernel-builder {made_by}; this is {provenance.builder_version}"
        )
    toolkit = metadata.extension.get(TOOLKIT)
    if toolkit is not None:
        found.append(f"it was built with a CUDA {toolkit} that its author brought")
    found.append(
        "the system's compiler and the installed torch are part of a build: compare them with the "
        "kernel-builder.lock of the sources"
    )
    return tuple(found)


def _fresh(settings: Settings, temporary: Path) -> Settings:
    """Return settings whose cache holds what was fetched by hash, and nothing that was made."""
    cache = temporary / "cache"
    cache.mkdir()
    for name in _FETCHED:
        (settings.cache / name).mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(settings.cache / name)
    return replace(settings, cache=cache)


def choose_target(settings: Settings, name: str) -> Settings:
    """Return settings with which a build is for the processor and the torch, and by the CUDA toolkit, of a variant.

    Args:
        settings: what the environment says; of ``cuda_home``, variants for other versions of CUDA
            take none.
        name: the variant.

    Raises:
        RebuildError: it is for another system, or for a CUDA that is neither pinned nor that of
            ``settings.cuda_home``.
        ToolchainError: ``settings.cuda_home`` is no whole toolkit.
    """
    variant, here = parse_variant(name), platform.system().lower()
    if not isinstance(variant, ArchVariant):
        return settings
    if variant.os != here:
        raise RebuildError(
            f"{name} is built on {variant.os}, and this machine has {here}: rebuild it on the other"
        )
    home, version = settings.cuda_home, variant.backend.version
    settings = replace(settings, cpu=variant.cpu, cuda_home=None)
    if isinstance(variant.framework, Torch):
        torches = choose_torches([variant.framework.version], variant.cpu)
        settings = replace(settings, torch_versions=torches)
    if variant.backend.kind is not BackendKind.CUDA or version is None:
        return settings
    pinned = list_pinned(variant.cpu)
    have = [f"pinned are {', '.join(map(str, pinned))}"]
    if variant.cpu != platform.machine():
        # What is linked with has to be the other processor's, which a toolkit of this one lacks.
        have.append(f"no other is used to build for {variant.cpu} on {platform.machine()}")
    elif home is not None:
        found = find_files(home).version
        if found == version:
            return replace(settings, cuda_home=home)
        have.append(f"{home} is CUDA {found}")
    else:
        have.append("name an installed toolkit of that version: --cuda-home PATH")
    if version not in pinned:
        raise RebuildError(f"{name} is built with CUDA {version}, and {'; '.join(have)}")
    return replace(settings, cuda_versions=(version,))


def format_verdicts(verdicts: tuple[Verdict, ...]) -> str:
    """Write verdicts for people: a line for each variant, and what differs."""
    lines = []
    for each in verdicts:
        if each.error is not None:
            lines += [f"{each.variant}: not rebuilt: {each.error}"]
        elif each.is_same:
            lines += [
                f"{each.variant}: the same {each.count} files, byte for byte, from {each.origin}"
            ]
        else:
            lines += [
                f"{each.variant}: {len(each.differences)} of {each.count} files differ when built from {each.origin}"
            ]
            lines += [f"  {line}" for one in each.differences for line in str(one).splitlines()]
            lines += [f"  note: {note}" for note in each.notes]
    return "\n".join(lines)
