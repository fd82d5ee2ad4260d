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
    """Return what was chosen, in words, and its commit.

    Raises:
        VersionNotFoundError: there is no such version, or none in the range.
        RevisionNotFoundError: there is no such branch, tag or commit, or several begin so.
    """
    if ref.revision is None:
        try:
            return _choose_version(ref, refs)
        except FormatError as err:
            raise _no_version(hub, ref, refs, err) from None
    branches, tags = dict(refs.branches), dict(refs.tags)
    name = ref.revision
    if (commit := branches.get(name.removeprefix("refs/heads/"))) is not None:
        return f"branch {name}", commit
    if (commit := tags.get(name.removeprefix("refs/tags/"))) is not None:
        return f"tag {name}", commit
    match _find_commits(hub, ref, refs, store, settings):
        case [commit]:
            return f"commit {commit}", commit
        case []:
            why = (
                f"has no branch, tag or commit {name!r}. Branches: "
                f"{', '.join(sorted(branches)) or 'none'}; tags: {', '.join(sorted(tags)) or 'none'}."
            )
        case several:
            why = f"has several commits that begin so: {', '.join(several)}. Give more digits."
    raise RevisionNotFoundError(str(ref.repo), name, f"{ref.repo} on {hub.url} {why}")


def _choose_version(ref: KernelRef, refs: Refs) -> tuple[str, str]:
    if ref.version_range is not None:
        tags = dict(refs.tags)
        tag = choose_tag(tags, ref.version_range)
        return f"tag {tag}", tags[tag]
    branches = dict(refs.branches)
    branch = choose_branch(branches, ref.version)
    return f"branch {branch}", branches[branch]


def _no_version(hub: Hub, ref: KernelRef, refs: Refs, err: FormatError) -> VersionNotFoundError:
    asked, versions, hint = ref.version_range, versions_of(refs), ""
    if asked is not None and asked.isdigit():
        hint = f" The number, version={asked}, means the branch v{asked}."
    elif asked is not None and not refs.tags and versions:
        newest = versions[-1]
        hint = f" Without tags there are no ranges; version={newest} takes the branch v{newest}."
    message = f"{ref.repo} on {hub.url}: {err}.{hint}"
    return VersionNotFoundError(str(ref.repo), asked or ref.version, versions, message)


def _find_commits(
    hub: Hub, ref: KernelRef, refs: Refs, store: Store, settings: Settings
) -> list[str]:
    """List the commits that a revision may mean, sorted: those that begin so, or one that only the hub knows."""
    name = ref.revision or ""
    if not (SHORT_COMMIT.fullmatch(name) or name.startswith("refs/")):
        return []
    known = (ref.commit for ref in (*refs.branches, *refs.tags))
    found = {commit for commit in known if commit.startswith(name)}
    if "/" not in name:
        found.update(find_cached_commits(store, hub.url, ref.repo, name))
    if hub.is_directory or not (found or settings.offline):
        found.update(hub.find_commits(ref.repo, name))
    return sorted(found)
