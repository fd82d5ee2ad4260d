"""The story of an upload: built variants → checks → what the hub has → plan → one commit."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_builder.card import render_card
from kernel_builder.check.variant import check_variant
from kernel_builder.commit_plan import (
    CommitPlan,
    LocalFile,
    format_plan,
    plan_commit,
    read_local_file,
)
from kernel_builder.config.model import Build
from kernel_builder.config.read import read_build
from kernel_builder.errors import CommandError, UploadError
from kernel_builder.plan import current_op_id
from kernel_builder.process import run
from kernel_builder.remote import Remote
from kernel_builder.settings import Settings
from kernel_builder.sources import find_strays, read_sources
from kernel_spec.errors import ConflictError, KernelError, UsageError
from kernel_spec.metadata import FILE_NAME as METADATA
from kernel_spec.metadata import Metadata, parse_metadata
from kernel_spec.names import RepoId, parse_repo_id, version_of_branch

_TAG = re.compile(r"v\d+\.\d+\.\d+([.-]?[0-9A-Za-z.-]+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltVariant:
    """A variant in ``build/`` that has passed every check."""

    directory: Path
    metadata: Metadata


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadPlan:
    """What an upload does.

    Attributes:
        repo: the repository.
        url: the hub.
        branch: the commit on the branch of the version.
        main: the commit on ``main``, or None where ``main`` keeps the card of a later version.
        tags: tags for the commit on the branch of the version.
        notes: what the author should know.
    """

    repo: RepoId
    url: str
    branch: CommitPlan
    main: CommitPlan | None
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the hub would stay as it is."""
        return self.branch.is_empty and not self.tags and (self.main is None or self.main.is_empty)


@dataclass(frozen=True, kw_only=True, slots=True)
class Uploaded:
    """What came of an upload.

    Attributes:
        plan: what was planned.
        commit: where the branch of the version is now; None where the user declined.
        changed: whether anything was written.
    """

    plan: UploadPlan
    commit: str | None
    changed: bool


def upload(
    project: Path,
    remote: Remote,
    *,
    settings: Settings,
    repo_id: str | None = None,
    tag: str | None = None,
    prune: bool = False,
    allow_dirty: bool = False,
    confirm: Callable[[UploadPlan], bool] = lambda _: True,
) -> Uploaded:
    """Publish the variants in ``build/`` of a project as one commit on the branch of its version.

    Args:
        project: the directory of the project.
        remote: the hub.
        settings: what the environment says.
        repo_id: where on the hub; None: ``[general.hub] repo-id``.
        tag: a tag ``vX.Y.Z`` for the commit.
        prune: delete variants of the branch that are not in ``build/``.
        allow_dirty: publish to an http hub though files differ from the last commit.
        confirm: shown the plan; False stops before anything is written.

    Raises:
        ConfigError, ProjectError: the project is wrong.
        UsageError: no repository is named, or the tag is not of that form.
        UploadError: nothing is built, a variant breaks a rule, the tree is dirty, or the hub refuses.
        ConflictError: somebody else has published, or the tag stands elsewhere.
    """
    build = read_build(project)
    repo = _choose_repo(build, repo_id)
    if tag is not None and _TAG.fullmatch(tag) is None:
        raise UsageError(f"--tag {tag}: expected vX.Y.Z, such as v{build.general.version}.0.0")
    if not remote.is_directory and not allow_dirty:
        refuse_dirty(project, settings)
    variants = read_variants(project, build)
    _refuse_stale(project, build, variants)
    with tempfile.TemporaryDirectory(prefix="kernel-card-") as temporary:
        card = _write_card(project, build, repo, variants, Path(temporary))
        files = [*_variant_files(variants), *_benchmark_files(project), *card]
        plan = make_plan(build, repo, remote, files, card, tag=tag, prune=prune)
        plan = replace(plan, notes=_notes(has_card=bool(card)))
        if plan.is_empty:
            return Uploaded(plan=plan, commit=plan.branch.branch.commit, changed=False)
        if not confirm(plan):
            return Uploaded(plan=plan, commit=None, changed=False)
        count = f"{len(variants)} variants" if len(variants) != 1 else "1 variant"
        message = f"Publish {build.general.name} v{build.general.version}: {count}"
        commit = remote.write_commit(repo, plan.branch, message=message, tags=plan.tags)
        if plan.main is not None and not plan.main.is_empty:
            remote.write_commit(repo, plan.main, message="Update the card", tags=())
    return Uploaded(plan=plan, commit=commit, changed=True)


def read_variants(project: Path, build: Build) -> tuple[BuiltVariant, ...]:
    """Read and check every variant in ``build/``.

    Raises:
        UploadError: there is none, or some break rules; every finding is named.
    """
    root = project / "build"
    places = sorted(path.parent for path in root.glob(f"*/{METADATA}"))
    if not places:
        raise UploadError(f"{root}: nothing is built; run: kernel-builder build {project}")
    faults: list[str] = []
    variants = []
    for place in places:
        findings = check_variant(place.resolve())
        faults += [f"{place.name}: {finding}" for finding in findings]
        if findings:
            continue
        metadata = parse_metadata((place / METADATA).read_bytes())
        faults += [f"{place.name}: {fault}" for fault in _differences(metadata, build)]
        variants.append(BuiltVariant(directory=place, metadata=metadata))
    if faults:
        again = f"nothing was published; run: kernel-builder build {project}"
        raise UploadError("\n".join([*faults, again]))
    return tuple(variants)


def _differences(metadata: Metadata, build: Build) -> list[str]:
    """Say where a variant is of another kernel or version than the project."""
    general = build.general
    faults = []
    if metadata.name != general.name:
        faults.append(f'it is of the kernel "{metadata.name}"; expected "{general.name}"')
    if metadata.version != general.version:
        faults.append(
            f"it was built as version {metadata.version}; build.toml says {general.version}"
        )
    return faults


def make_plan(
    build: Build,
    repo: RepoId,
    remote: Remote,
    files: Iterable[LocalFile],
    card: Iterable[LocalFile],
    *,
    tag: str | None,
    prune: bool,
) -> UploadPlan:
    """Ask the hub what it has, and decide what to change.

    ``main`` gets the card alone, and keeps that of a later version.

    Raises:
        ConflictError: the tag stands on another commit.
    """
    branches, tags = remote.read_refs(repo)
    name = build.general.branch or f"v{build.general.version}"
    held = remote.read_branch(repo, name, branches.get(name))
    branch = plan_commit(held, files, prune=prune)
    wanted: tuple[str, ...] = ()
    if tag is not None:
        if tag in tags and (tags[tag] != held.commit or not branch.is_empty):
            raise ConflictError(
                f"{repo}: the tag {tag} stands at {tags[tag][:12]}, and tags do not move; choose another"
            )
        wanted = () if tag in tags else (tag,)
    versions = [version_of_branch(each) for each in branches]
    later = any(each is not None and each > build.general.version for each in versions)
    main = None
    if name != "main" and not later:
        main = plan_commit(remote.read_branch(repo, "main", branches.get("main")), card)
    return UploadPlan(repo=repo, url=remote.url, branch=branch, main=main, tags=wanted)


def refuse_dirty(project: Path, settings: Settings) -> None:
    """Refuse a project whose files differ from its last commit; outside git nothing is dirty.

    Raises:
        UploadError: naming the first few of them.
    """
    git = ("git", "-C", str(project), "-c", "core.fsmonitor=false")
    try:
        run([*git, "rev-parse", "--is-inside-work-tree"], variables=settings.variables, timeout=30)
    except CommandError:
        return
    status = run(
        [*git, "status", "--porcelain", "--", ".", ":(exclude)build"],
        variables=settings.variables,
        timeout=60,
    )
    changed = [line[3:] for line in status.output.splitlines()]
    if changed:
        shown = ", ".join(changed[:5]) + (", …" if len(changed) > 5 else "")
        raise UploadError(
            f"{project}: files differ from the last commit ({shown}), so nobody could build the "
            "same again; commit them and build, or upload as it is with --allow-dirty"
        )


def format_upload(plan: UploadPlan) -> str:
    """Write what an upload does, for people."""
    lines = [f"{plan.repo} -> {plan.url}", format_plan(plan.branch)]
    if plan.main is not None and not plan.main.is_empty:
        lines.append(format_plan(plan.main))
    lines += [f"tag {tag}" for tag in plan.tags]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _choose_repo(build: Build, repo_id: str | None) -> RepoId:
    if repo_id is not None:
        try:
            return parse_repo_id(repo_id)
        except KernelError as err:
            raise UsageError(f"--repo-id {repo_id}: {err}") from err
    if build.general.repo_id is None:
        raise UsageError(
            "where to? build.toml names no repository: give --repo-id OWNER/NAME, or write "
            f'[general.hub] with repo-id = "OWNER/{build.general.name}"'
        )
    return build.general.repo_id


def _variant_files(variants: Iterable[BuiltVariant]) -> list[LocalFile]:
    files = []
    for variant in variants:
        root = variant.directory
        for place in sorted(root.rglob("*")):
            if place.is_file() and "__pycache__" not in place.parts:
                relative = place.relative_to(root).as_posix()
                files.append(read_local_file(f"build/{root.name}/{relative}", place))
    return files


def _benchmark_files(project: Path) -> list[LocalFile]:
    """Read the benchmarks that are published.

    Raises:
        UploadError: one is a link out of the project, a pipe or another thing that is no source.
    """
    if strays := find_strays(project, "benchmarks"):
        raise UploadError("\n".join(strays))
    places = sorted((project / "benchmarks").glob("benchmark*.py"))
    return [read_local_file(f"benchmarks/{place.name}", place) for place in places]


def _write_card(
    project: Path, build: Build, repo: RepoId, variants: Iterable[BuiltVariant], temporary: Path
) -> list[LocalFile]:
    names = [variant.directory.name for variant in variants]
    text = render_card(project, build, repo, variants=names)
    if text is None:
        return []
    place = temporary / "README.md"
    place.write_text(text, encoding="utf-8")
    return [read_local_file("README.md", place)]


def _refuse_stale(project: Path, build: Build, variants: Iterable[BuiltVariant]) -> None:
    """Refuse variants that were built from other sources than those that are here now.

    Raises:
        UploadError: naming each of them.
    """
    sources = read_sources(project, build)
    stale = [
        each.directory.name
        for each in variants
        if each.metadata.id != current_op_id(build, sources, each.metadata.backend)
    ]
    if stale:
        raise UploadError(
            "\n".join(f"{name} was built from other sources than those here now" for name in stale)
            + f"\nnothing was published; run: kernel-builder build {project}"
        )


def _notes(*, has_card: bool) -> tuple[str, ...]:
    """Say that there is no card where there is none."""
    return () if has_card else ("there is no CARD.md, so the kernel has no page",)
