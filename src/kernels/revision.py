"""What a request names: a repository, and a version, a range, a revision or the default of it."""

from __future__ import annotations

from typing import NamedTuple

from kernel_spec.errors import FormatError
from kernel_spec.names import (
    SHORT_COMMIT,
    RepoId,
    choose_branch,
    choose_tag,
    version_of_branch,
)
from kernel_spec.wire import Refs
from kernels.errors import RevisionNotFoundError, VersionNotFoundError
from kernels.hub import Hub
from kernels.settings import Settings
from kernels.store import Store, find_cached_commits


class KernelRef(NamedTuple):
    """What was asked for: a repository and a version, a revision, a range of tags, or nothing else."""

    repo: RepoId
    version: int | None = None
    revision: str | None = None
    version_range: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.repo} version {self.version}"
        if self.version_range is not None:
            return f"{self.repo} version {self.version_range!r}"
        return str(self.repo) if self.revision is None else f"{self.repo}@{self.revision}"


def versions_of(refs: Refs) -> tuple[int, ...]:
    """Return the versions that a repository has a branch for, in order."""
    found = (version_of_branch(ref.name) for ref in refs.branches)
    return tuple(sorted(version for version in found if version is not None))


def choose_commit(
    hub: Hub, ref: KernelRef, refs: Refs, store: Store, settings: Settings
) -> tuple[str, str]:
    """Return what was chosen, in words, and its commit."""
    branches = {branch.name: branch.commit for branch in refs.branches}
    tags = {tag.name: tag.commit for tag in refs.tags}
    if ref.revision is None:
        try:
            if ref.version_range is not None:
                tag = choose_tag(tags, ref.version_range)
                return f"tag {tag}", tags[tag]
            branch = choose_branch(branches, ref.version)
        except FormatError as err:
            asked = ref.version if ref.version_range is None else ref.version_range
            hint = (
                f" The number, version={asked}, means the branch v{asked}."
                if isinstance(asked, str) and asked.isdigit()
                else ""
            )
            if (
                ref.version_range is not None
                and not tags
                and not hint
                and (kept := versions_of(refs))
            ):
                hint = f" Without tags there are no ranges; version={kept[-1]} takes the branch v{kept[-1]}."
            raise VersionNotFoundError(
                str(ref.repo), asked, versions_of(refs), f"{ref.repo} on {hub.url}: {err}.{hint}"
            ) from None
        return f"branch {branch}", branches[branch]
    name = ref.revision
    if (commit := branches.get(name.removeprefix("refs/heads/"))) is not None:
        return f"branch {name}", commit
    if (commit := tags.get(name.removeprefix("refs/tags/"))) is not None:
        return f"tag {name}", commit
    if SHORT_COMMIT.fullmatch(name) or name.startswith("refs/"):
        known = {*branches.values(), *tags.values()}
        found = {commit for commit in known if commit.startswith(name)}
        found.update(find_cached_commits(store, hub.url, ref.repo, name) if "/" not in name else ())
        if hub.is_directory or not (found or settings.offline):
            found.update(hub.find_commits(ref.repo, name))
        if len(found) == 1:
            commit = found.pop()
            return f"commit {commit}", commit
        if found:
            raise RevisionNotFoundError(
                str(ref.repo),
                name,
                f"{ref.repo} on {hub.url}: {name} may mean any of {', '.join(sorted(found))}: "
                "give more digits.",
            )
    raise RevisionNotFoundError(
        str(ref.repo),
        name,
        f"{ref.repo} on {hub.url} has no branch, tag or commit {name!r}. "
        f"Branches: {', '.join(sorted(branches)) or 'none'}; tags: {', '.join(sorted(tags)) or 'none'}.",
    )
