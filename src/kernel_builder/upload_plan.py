"""What an upload does to a hub: decided before anything is written, and shown as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_builder.commit_plan import (
    SOURCES,
    CommitPlan,
    LocalFile,
    RemoteBranch,
    format_plan,
    is_same,
    plan_commit,
)
from kernel_builder.remote import Remote
from kernel_builder.upload_scratch import is_scratch
from kernel_spec.errors import ConflictError, UsageError
from kernel_spec.names import RepoId, version_of_branch
from kernel_spec.refs import DEFAULT_BRANCH

CARD = "README.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where an upload goes, and how much it may change there.

    Attributes:
        repo: the repository.
        branch: the branch of the version.
        version: the version.
        tag: a tag for the commit, or None.
        prune: whether published variants and benchmarks that are not here go.
        replace: whether what is published with other bytes is replaced.
        pull_request: whether the owner is asked to take the commits over.
    """

    repo: RepoId
    branch: str
    version: int
    tag: str | None = None
    prune: bool = False
    replace: bool = False
    pull_request: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Cards:
    """The card of a kernel, as this project has it for different sets of variants.

    Attributes:
        now: for the variants that the branch will hold; None where the project has none.
        before: for those that it holds now: a published card like it came from this project.
    """

    now: LocalFile | None
    before: LocalFile | None


@dataclass(frozen=True, kw_only=True, slots=True)
class UploadPlan:
    """What an upload does.

    Attributes:
        repo: the repository.
        url: the hub.
        branch: the commit on the branch of the version.
        main: the commit on ``main``, or None where ``main`` keeps its card.
        tags: tags for the commit on the branch of the version.
        pull_request: whether the owner is asked to take the commits over.
        left_over: branches that uploads left which were cut off; they are deleted.
        notes: what the author should know.
    """

    repo: RepoId
    url: str
    branch: CommitPlan
    main: CommitPlan | None
    tags: tuple[str, ...] = ()
    pull_request: bool = False
    left_over: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing would be published."""
        return self.branch.is_empty and not self.tags and (self.main is None or self.main.is_empty)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteRepo:
    """What a hub has of a repository.

    Attributes:
        branches: the commits of branches, by name.
        tags: the commits of tags, by name.
        branch: the branch that is published to.
    """

    branches: Mapping[str, str]
    tags: Mapping[str, str]
    branch: RemoteBranch


def read_remote(remote: Remote, target: Target) -> RemoteRepo:
    """Ask a hub what it has."""
    branches, tags = remote.read_refs(target.repo)
    branch = _read_branch(remote, target.repo, target.branch, branches)
    return RemoteRepo(branches=branches, tags=tags, branch=branch)


def _read_branch(
    remote: Remote, repo: RepoId, name: str, branches: Mapping[str, str]
) -> RemoteBranch:
    if name in branches:
        return remote.read_branch(repo, name, branches[name])
    return remote.read_new_branch(repo, name, branches)


def make_plan(
    target: Target, remote: Remote, held: RemoteRepo, files: Iterable[LocalFile], cards: Cards
) -> UploadPlan:
    """Decide what to change.

    The branch of the version gets the files and the card, ``main`` the card alone. What is
    published is not replaced unasked: a variant with other bytes is an error; a card that did not
    come from this project's ``CARD.md`` stays, and ``main`` keeps the card of a later version.

    Raises:
        ConflictError: variants are published with other bytes, or the tag stands elsewhere.
    """
    notes = [] if cards.now else ["there is no CARD.md, so the kernel has no page"]
    left_over = () if target.pull_request else remote.find_left_over(target.repo, held.branches)
    notes += [
        f"the branch {name} is of an upload that is under way; if it was cut off, an upload from its "
        "machine removes it, and any upload a day later"
        for name in held.branches
        if is_scratch(name) and name not in left_over
    ]
    card = cards.now
    if card and not target.replace and not _is_ours(held.branch, cards):
        notes.append(
            f"{CARD} of {target.branch} did not come from this CARD.md; it stays "
            "(--replace publishes yours)"
        )
        card = None
    branch = plan_commit(
        held.branch,
        [*files, *([card] if card else [])],
        prune=target.prune,
        replace=target.replace,
    )
    if branch.differing and not target.replace:
        raise ConflictError(_differing(target, branch))
    tags = _plan_tags(target, held, branch)
    main = None
    if card and target.branch != DEFAULT_BRANCH and not _has_later(held, target.version):
        stands = _read_branch(remote, target.repo, DEFAULT_BRANCH, held.branches)
        main = plan_commit(stands, [card], replace=True)
    return UploadPlan(
        repo=target.repo,
        url=remote.url,
        branch=branch,
        main=main,
        tags=tags,
        pull_request=target.pull_request,
        left_over=left_over,
        notes=tuple(notes),
    )


def _is_ours(branch: RemoteBranch, cards: Cards) -> bool:
    """Say whether the card of a branch may go: there is none, it is not its own, or it is of this project."""
    held = next((file for file in branch.files if file.path == CARD), None)
    if held is None or branch.commit is None:
        return True
    return any(each is not None and is_same(each, held) for each in (cards.now, cards.before))


def _differing(target: Target, branch: CommitPlan) -> str:
    differing = {name: _changes(name, branch) for name in branch.differing}
    names = "; ".join(f"{name} ({_few(paths)})" for name, paths in differing.items())
    only_said = all(paths == ["metadata.json"] for paths in differing.values())
    return (
        f"{target.repo} {target.branch}: published with other bytes than those here: {names}. "
        + (
            "The code is the same; what is said of it differs, such as its commit. "
            if only_said
            else ""
        )
        + "What is published under a version stays, since others rely on it. If the sources are newer than "
        f"those, raise the version in build.toml (now {target.version}); if they are older, update "
        "them; to replace what is published all the same, give --replace. Nothing was published"
    )


def _changes(name: str, branch: CommitPlan) -> list[str]:
    """Return the paths below a variant, or the sources, that the commit would add, change or delete."""
    root = f"{name}/" if name == SOURCES else f"build/{name}/"
    paths = [*(file.path for file in (*branch.add, *branch.change)), *branch.delete]
    return sorted(path.removeprefix(root) for path in paths if path.startswith(root))


def _few(paths: list[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more


def _plan_tags(target: Target, held: RemoteRepo, branch: CommitPlan) -> tuple[str, ...]:
    tag = target.tag
    if tag is None:
        return ()
    if target.pull_request:
        raise UsageError("--tag: a pull request has no tag; set it when it was taken over")
    at = held.tags.get(tag)
    if at is None:
        return (tag,)
    if at == held.branch.commit and branch.is_empty:
        return ()
    raise ConflictError(
        f"{target.repo}: the tag {tag} stands at {at[:12]}, and tags do not move; choose another"
    )


def _has_later(held: RemoteRepo, version: int) -> bool:
    found = map(version_of_branch, held.branches)
    return any(each is not None and each > version for each in found)


def format_upload(plan: UploadPlan) -> str:
    """Write what an upload does, for people."""
    way = " as a pull request" if plan.pull_request else ""
    lines = [f"{plan.repo} -> {plan.url}{way}", format_plan(plan.branch)]
    if plan.main is not None and not plan.main.is_empty:
        lines.append(format_plan(plan.main))
    lines += [f"tag {tag}" for tag in plan.tags]
    lines += [
        f"delete the branch {name}, left by an upload that was cut off" for name in plan.left_over
    ]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join(lines)


def describe_plan(plan: UploadPlan) -> dict[str, Any]:
    """Write what an upload does, for programs."""
    commits = [plan.branch] if plan.main is None else [plan.branch, plan.main]
    return {
        "repo_id": str(plan.repo),
        "hub": plan.url,
        "branch": plan.branch.branch.name,
        "commits": [_describe_commit(commit) for commit in commits],
        "tags": list(plan.tags),
        "left_over": list(plan.left_over),
        "notes": list(plan.notes),
    }


def _describe_commit(plan: CommitPlan) -> dict[str, Any]:
    return {
        "branch": plan.branch.name,
        "parent": plan.branch.commit,
        "add": [{"path": file.path, "size": file.size} for file in plan.add],
        "change": [{"path": file.path, "size": file.size} for file in plan.change],
        "delete": list(plan.delete),
        "unchanged": len(plan.keep),
        "stale_variants": list(plan.stale),
        "withheld": list(plan.withheld),
    }
