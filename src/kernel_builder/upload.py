"""The story of an upload: built variants → checks → what the hub has → plan → one commit, then the card."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_builder.built import BuiltVariant, Package, read_package
from kernel_builder.card import FILE_NAME as CARD_SOURCE
from kernel_builder.card import render_card
from kernel_builder.commit_plan import (
    SOURCES,
    CommitOptions,
    CommitPlan,
    LocalFile,
    RemoteBranch,
    Written,
    read_local_file,
    variants_of,
)
from kernel_builder.config.model import FILE_NAME as BUILD_TOML
from kernel_builder.errors import CommandError, UploadError
from kernel_builder.git import run_git
from kernel_builder.remote import Remote
from kernel_builder.settings import Settings
from kernel_builder.sources import find_strays, read_sources
from kernel_builder.upload_plan import (
    CARD,
    Cards,
    Target,
    UploadPlan,
    make_plan,
    read_remote,
)
from kernel_spec.amounts import format_count
from kernel_spec.errors import ConflictError, KernelError, UsageError
from kernel_spec.names import RepoId, parse_repo_id, ref_fault, version_of_branch

_TAG = re.compile(r"v\d+\.\d+\.\d+([.-]?[0-9A-Za-z.-]+)?", re.ASCII)


class Status(StrEnum):
    """What became of an upload."""

    NO_CHANGES = "no_changes"
    NOT_CONFIRMED = "not_confirmed"
    UPLOADED = "uploaded"
    PULL_REQUEST_CREATED = "pull_request_created"


@dataclass(frozen=True, kw_only=True, slots=True)
class Uploaded:
    """What came of an upload.

    Attributes:
        plan: what was planned.
        status: what became of it.
        commit: where the branch of the version is now, or the commit of the pull request; None where
            the user declined.
        pull_requests: the URLs of the pull requests, by the branch that they are for.
    """

    plan: UploadPlan
    status: Status
    commit: str | None
    pull_requests: tuple[tuple[str, str], ...] = ()

    @property
    def changed(self) -> bool:
        """Whether anything was written."""
        return self.status in {Status.UPLOADED, Status.PULL_REQUEST_CREATED}


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadOptions:
    """What the author asks for.

    Attributes:
        repo_id: where on the hub; None: ``[general.hub] repo-id``.
        branch: the branch; None: that of ``[general.hub]``, or ``v<version>``.
        tag: a tag ``vX.Y.Z`` for the commit.
        variants: the names of those to publish of what is built; empty: all.
        prune: delete what is published on the branch and is not here.
        replace: replace what is published with other bytes.
        allow_dirty: publish to an http hub though files differ from the last commit.
        private: whether a repository that has to be made is private.
        pull_request: ask the owner to take it over.
        with_sources: publish the sources, too, so that loaders can build a variant that is missing.
    """

    repo_id: str | None = None
    branch: str | None = None
    tag: str | None = None
    variants: tuple[str, ...] = ()
    prune: bool = False
    replace: bool = False
    allow_dirty: bool = False
    private: bool = False
    pull_request: bool = False
    with_sources: bool = False


def upload(
    directory: Path,
    remote: Remote,
    *,
    settings: Settings,
    options: UploadOptions,
    confirm: Callable[[UploadPlan], bool] = lambda _: True,
) -> Uploaded:
    """Publish built variants as one commit on the branch of their version, then the card on ``main``.

    Args:
        directory: a project, or a directory of built variants.
        remote: the hub.
        settings: what the environment says.
        options: what the author asks for.
        confirm: shown the plan; False stops before anything is written.

    Raises:
        ConfigError, ProjectError: the project is wrong.
        UsageError: no repository is named, or an option is not as it should be.
        UploadError: nothing is built, a variant breaks a rule, the tree is dirty, or the hub refuses.
        ConflictError: somebody else has published, or what is here is published with other bytes.
    """
    if options.variants and options.prune:
        raise UsageError("--variant and --prune exclude each other: the others would be deleted")
    package = read_package(directory, only=options.variants)
    target = _choose_target(package, options)
    if not remote.is_directory and not options.allow_dirty:
        refuse_dirty(directory, settings)
    held = read_remote(remote, target)
    with tempfile.TemporaryDirectory(prefix="kernel-card-") as temporary:
        cards = _write_cards(package, target, held.branch, Path(temporary))
        files = [*_variant_files(package.variants), *_benchmark_files(directory)]
        files += _source_files(package) if options.with_sources else []
        plan = make_plan(target, remote, held, files, cards)
        unchanged = Uploaded(plan=plan, status=Status.NO_CHANGES, commit=plan.branch.branch.commit)
        if plan.is_empty and not plan.left_over:
            return unchanged
        if not confirm(plan):
            return Uploaded(plan=plan, status=Status.NOT_CONFIRMED, commit=None)
        remote.remove_left_over(plan.repo, plan.left_over)
        if plan.is_empty:
            return unchanged
        return _write(package, remote, plan, options)


def _write(package: Package, remote: Remote, plan: UploadPlan, options: UploadOptions) -> Uploaded:
    """Write the version first: a card without its kernel would promise what is not there."""
    version, card = plan.branch, plan.main
    commit = version.branch.commit
    written: dict[str, Written] = {}
    if plan.tags or not version.is_empty:
        count = format_count(len(package.variants), "variant")
        what = CommitOptions(
            message=f"Publish {package.name} v{package.version}: {count}",
            tags=plan.tags,
            private=options.private,
            pull_request=plan.pull_request,
        )
        first = remote.write_commit(plan.repo, version, what)
        written[version.branch.name] = first
        commit = first.commit
    if card is not None and not card.is_empty:
        written[card.branch.name] = _write_card(remote, plan, card, published=commit)
    return Uploaded(
        plan=plan,
        status=Status.PULL_REQUEST_CREATED if plan.pull_request else Status.UPLOADED,
        commit=commit,
        pull_requests=tuple(
            (branch, each.pull_request)
            for branch, each in written.items()
            if each.pull_request is not None
        ),
    )


def _write_card(
    remote: Remote, plan: UploadPlan, card: CommitPlan, *, published: str | None
) -> Written:
    """Write the card of a kernel that is published.

    Raises:
        ConflictError, UploadError: saying, too, what is published by now.
    """
    what = CommitOptions(message="Update the card", pull_request=plan.pull_request)
    try:
        return remote.write_commit(plan.repo, card, what)
    except KernelError as err:
        kind = ConflictError if isinstance(err, ConflictError) else UploadError
        raise kind(
            f"the kernel is published: {plan.repo} {plan.branch.branch.name} is at {published}. Its "
            f"card on {card.branch.name} is not: {err}. The same command again publishes the card"
        ) from err


def refuse_dirty(project: Path, settings: Settings) -> None:
    """Refuse a project whose files differ from its last commit; outside git nothing is dirty.

    Raises:
        UploadError: naming the first few of them.
    """
    try:
        run_git("rev-parse", "--is-inside-work-tree", settings=settings, place=project)
    except CommandError:
        return
    words = ("status", "--porcelain", "--", ".", ":(exclude)build")
    status = run_git(*words, settings=settings, place=project)
    changed = [line[3:] for line in status.output.splitlines()]
    if changed:
        shown = ", ".join(changed[:5]) + (", …" if len(changed) > 5 else "")
        raise UploadError(
            f"{project}: files differ from the last commit ({shown}), so nobody could build the "
            "same again; commit them and build, or upload as it is with --allow-dirty"
        )


def _choose_target(package: Package, options: UploadOptions) -> Target:
    tag, branch = options.tag, options.branch or package.branch
    if tag is not None and _TAG.fullmatch(tag) is None:
        raise UsageError(f"--tag {tag}: expected vX.Y.Z, such as v{package.version}.0.0")
    if fault := ref_fault(branch):
        raise UsageError(f"--branch {branch}: {fault}")
    if version_of_branch(branch) not in (None, package.version):
        # Loaders take vN for version N, whatever its metadata says.
        raise UsageError(
            f"branch {branch}: that is where version {version_of_branch(branch)} is looked for, and this "
            f"is version {package.version}; set version in build.toml, or take a name of another form"
        )
    return Target(
        repo=_choose_repo(package, options.repo_id),
        branch=branch,
        version=package.version,
        tag=tag,
        prune=options.prune,
        replace=options.replace,
        pull_request=options.pull_request,
    )


def _choose_repo(package: Package, repo_id: str | None) -> RepoId:
    if repo_id is not None:
        try:
            return parse_repo_id(repo_id)
        except KernelError as err:
            raise UsageError(f"--repo-id {repo_id}: {err}") from err
    if package.repo_id is not None:
        return package.repo_id
    raise UsageError(
        f"where to? {'build.toml names no repository' if package.build else 'there is no build.toml'}: "
        "give --repo-id OWNER/NAME, or write [general.hub] with "
        f'repo-id = "OWNER/{package.name}"'
    )


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


def _source_files(package: Package) -> list[LocalFile]:
    """Read ``build.toml`` and the files that it names: all that a build needs.

    Raises:
        UsageError: there is no project here.
    """
    if package.build is None:
        raise UsageError(
            f"--with-sources: {package.directory} has no {BUILD_TOML}, so there are no sources"
        )
    sources = read_sources(package.directory, package.build)
    paths = [BUILD_TOML, *(file.path for file in (*sources.listed, *sources.extension))]
    return [read_local_file(f"{SOURCES}/{path}", package.directory / path) for path in paths]


def _write_cards(package: Package, target: Target, branch: RemoteBranch, temporary: Path) -> Cards:
    """Write the card for the variants that the branch will have, and for those that it has."""
    held = variants_of(branch) if branch.commit is not None else frozenset()
    names = frozenset(variant.directory.name for variant in package.variants)
    will_hold = names if target.prune else names | held

    def write(variants: frozenset[str], name: str) -> LocalFile | None:
        text = _read_card(package, target.repo, variants)
        if text is None:
            return None
        place = temporary / name
        place.write_text(text, encoding="utf-8")
        return read_local_file(CARD, place)

    return Cards(now=write(will_hold, "now"), before=write(held, "before"))


def _read_card(package: Package, repo: RepoId, variants: frozenset[str]) -> str | None:
    if package.build is not None:
        return render_card(package.directory, package.build, repo, variants=variants)
    # Without build.toml there is nothing to fill in.
    place = package.directory / CARD_SOURCE
    return place.read_text("utf-8") if place.is_file() else None
