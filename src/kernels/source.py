"""Finds where a kernel comes from: which hub, which commit, which files.

The hubs of the settings are asked in their order; only a definite "there is no such repository"
moves on to the next. What a hub said is remembered in the cache (one record per repository) and
holds for ``KERNELS_REF_TTL`` seconds. A full commit id whose files are remembered needs no hub at
all. Offline the records alone decide, however old they are; a hub that is a folder needs no network
and is read all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kernel_spec.errors import FormatError
from kernel_spec.names import COMMIT, SHORT_COMMIT, RepoId, choose_branch, version_of_branch
from kernel_spec.wire import Refs, TreeFile
from kernels import log
from kernels.answers import answer_of
from kernels.connect import open_hub
from kernels.errors import (
    NotCachedError,
    RepoNotFoundError,
    RevisionNotFoundError,
    VersionNotFoundError,
)
from kernels.hub import BUILD_FOLDER, Hub
from kernels.settings import Settings, hubs_of
from kernels.store import (
    Store,
    find_cached_commits,
    read_tree,
    write_tree,
)


class KernelRef(NamedTuple):
    """What was asked for: a repository and a version, a revision, or neither."""

    repo: RepoId
    version: int | None = None
    revision: str | None = None

    def __str__(self) -> str:
        if self.version is not None:
            return f"{self.repo} version {self.version}"
        return str(self.repo) if self.revision is None else f"{self.repo}@{self.revision}"


class Located(NamedTuple):
    """Where a kernel comes from.

    Attributes:
        ref: what was asked for.
        hub: the hub that has it.
        commit: the commit that it means there.
        taken: the branch, tag or commit that was chosen.
        files: every file below ``build/`` at that commit; paths from the repository's root.
        refs: the branches and tags, or None where a full commit made them needless.
        stamp: the value of the hub's refs when they were read, for a directory hub.
        expires: until when this holds, in seconds since 1970, for any other hub.
        on_disk: whether the hub can be read offline: it is a folder, or a snapshot on this disk.
    """

    ref: KernelRef
    hub: Hub
    commit: str
    taken: str
    files: tuple[TreeFile, ...]
    refs: Refs | None = None
    stamp: tuple[int, ...] | None = None
    expires: float = float("inf")
    on_disk: bool = False


def locate(
    ref: KernelRef,
    settings: Settings,
    *,
    refresh: bool = False,
    user_agent: str | Mapping[str, str] | None = None,
) -> Located:
    """Find the hub, the commit and the files of a kernel.

    Args:
        ref: what is asked for.
        settings: where to look.
        refresh: ask the hub even where its last answer is fresh.
        user_agent: what the calling library adds to the header of that name.

    Raises:
        HubAccessError, HubUnreachableError: a hub refused, or could not answer and no record helps.
        NotCachedError: offline, and the cache does not hold it.
        RepoNotFoundError: no hub has the repository.
        RevisionNotFoundError: the repository has no such version, branch, tag or commit.
    """
    try:
        return _locate(ref, settings, refresh=refresh, user_agent=user_agent)
    except NotCachedError:
        if (located := _locate_snapshot(ref, settings)) is None:
            raise
        _announce(located)
        return located


def _locate(
    ref: KernelRef,
    settings: Settings,
    *,
    refresh: bool,
    user_agent: str | Mapping[str, str] | None,
) -> Located:
    store = Store(settings.cache)
    hubs = open_hubs(ref.repo, settings, user_agent=user_agent)
    if ref.revision is not None and COMMIT.fullmatch(ref.revision):
        return _locate_commit(ref, ref.revision, hubs, store, settings)
    skipped = False
    for hub in hubs:
        try:
            located = _locate_on(hub, ref, store, settings, refresh=refresh)
        except RepoNotFoundError:
            skipped = True
            continue
        _announce(located)
        return located
    if any(reach(hub, ref.repo, settings).offline for hub in hubs):
        raise _not_cached(ref)
    if skipped and not refresh:
        # "Not there" may have come from records: make sure.
        return _locate(ref, settings, refresh=True, user_agent=user_agent)
    raise RepoNotFoundError(
        str(ref.repo),
        [hub.url for hub in hubs],
        similar=[name for hub in hubs for name in hub.find_similar(ref.repo)],
    )


def open_hubs(
    repo: RepoId, settings: Settings, *, user_agent: str | Mapping[str, str] | None = None
) -> tuple[Hub, ...]:
    """Return the hubs that may hold a repository, in order."""
    return tuple(
        open_hub(
            address.url,
            send_token=address.url == settings.token_hub,
            user_agent=user_agent,
            telemetry=settings.telemetry,
        )
        for address in hubs_of(settings, repo.owner)
    )


def reach(hub: Hub, repo: RepoId, settings: Settings) -> Settings:
    """Return the settings as they hold for one hub: reading a folder that is there needs no network."""
    if settings.offline and hub.is_directory and hub.stamp(repo) is not None:
        return settings._replace(offline=False)
    return settings


def tree_of(hub: Hub, repo: RepoId, commit: str, settings: Settings) -> tuple[TreeFile, ...]:
    """Return the files below ``build/`` of a commit, from the cache or else from the hub.

    Raises:
        NotCachedError: offline, and the cache does not hold them.
    """
    store = Store(settings.cache)
    files = read_tree(store, hub.url, repo, commit)
    if files is None:
        if reach(hub, repo, settings).offline:
            raise _not_cached(KernelRef(repo, revision=commit))
        files = hub.read_tree(repo, commit, BUILD_FOLDER)
        write_tree(store, hub.url, repo, commit, files)
    return files


def variants_of(files: tuple[TreeFile, ...]) -> dict[str, tuple[TreeFile, ...]]:
    """Group the files below ``build/`` by variant; paths from the variant's root."""
    variants: dict[str, list[TreeFile]] = {}
    for file in files:
        folder, _, rest = file.path.partition("/")
        name, slash, path = rest.partition("/")
        if folder == BUILD_FOLDER and slash:
            variants.setdefault(name, []).append(replace(file, path=path))
    return {name: tuple(variants[name]) for name in sorted(variants)}


def versions_of(refs: Refs) -> tuple[int, ...]:
    """Return the versions that a repository has a branch for, in order."""
    found = (version_of_branch(ref.name) for ref in refs.branches)
    return tuple(sorted(version for version in found if version is not None))


def read_refs(
    repo: RepoId,
    settings: Settings,
    *,
    user_agent: str | Mapping[str, str] | None = None,
) -> tuple[Hub, Refs]:
    """Ask the hubs for the refs of a repository, records aside unless offline.

    Raises:
        As :func:`locate`.
    """
    store = Store(settings.cache)
    hubs = open_hubs(repo, settings, user_agent=user_agent)
    for hub in hubs:
        here = reach(hub, repo, settings)
        try:
            return hub, answer_of(hub, repo, store, here, refresh=not here.offline).refs
        except RepoNotFoundError:
            continue
    if any(reach(hub, repo, settings).offline for hub in hubs):
        raise _not_cached(KernelRef(repo))
    raise RepoNotFoundError(
        str(repo),
        [hub.url for hub in hubs],
        similar=[name for hub in hubs for name in hub.find_similar(repo)],
    )


def _locate_commit(
    ref: KernelRef, commit: str, hubs: tuple[Hub, ...], store: Store, settings: Settings
) -> Located:
    for hub in hubs:
        files = read_tree(store, hub.url, ref.repo, commit)
        if files is not None:
            return _located_commit(ref, hub, commit, files)
    for hub in hubs:
        if reach(hub, ref.repo, settings).offline:
            continue
        try:
            files = tree_of(hub, ref.repo, commit, settings)
        except RepoNotFoundError:
            continue
        return _located_commit(ref, hub, commit, files)
    if any(reach(hub, ref.repo, settings).offline for hub in hubs):
        raise _not_cached(ref)
    raise RepoNotFoundError(
        str(ref.repo),
        [hub.url for hub in hubs],
        similar=[name for hub in hubs for name in hub.find_similar(ref.repo)],
    )


def _located_commit(ref: KernelRef, hub: Hub, commit: str, files: tuple[TreeFile, ...]) -> Located:
    return Located(
        ref=ref,
        hub=hub,
        commit=commit,
        taken=f"commit {commit}",
        files=files,
        on_disk=hub.is_directory and hub.stamp(ref.repo) is not None,
    )


def _locate_snapshot(ref: KernelRef, settings: Settings) -> Located | None:
    """Find a kernel among the snapshots that the published client left, or None."""
    from kernels.snapshots import SnapshotHub

    url = next((hub.url for hub in hubs_of(settings, ref.repo.owner)), "")
    for hub in (SnapshotHub(url, cache) for cache in settings.snapshots):
        try:
            refs = hub.read_refs(ref.repo)
            if ref.revision is not None and COMMIT.fullmatch(ref.revision):
                taken, commit = f"commit {ref.revision}", ref.revision
            else:
                taken, commit = _choose_commit(hub, ref, refs, Store(settings.cache), settings)
        except (RepoNotFoundError, RevisionNotFoundError):
            continue
        if files := hub.read_tree(ref.repo, commit):
            return Located(
                ref=ref, hub=hub, commit=commit, taken=taken, files=files, refs=refs, on_disk=True
            )
    return None


def _locate_on(
    hub: Hub, ref: KernelRef, store: Store, settings: Settings, *, refresh: bool
) -> Located:
    settings = reach(hub, ref.repo, settings)
    answer = answer_of(hub, ref.repo, store, settings, refresh=refresh)
    try:
        taken, commit = _choose_commit(hub, ref, answer.refs, store, settings)
    except RevisionNotFoundError:
        if not answer.remembered or settings.offline or refresh:
            raise
        # The record may be older than what is asked for.
        answer = answer_of(hub, ref.repo, store, settings, refresh=True)
        taken, commit = _choose_commit(hub, ref, answer.refs, store, settings)
    return Located(
        ref=ref,
        hub=hub,
        commit=commit,
        taken=taken,
        files=tree_of(hub, ref.repo, commit, settings),
        refs=answer.refs,
        stamp=answer.stamp,
        expires=answer.expires,
        on_disk=answer.stamp is not None,
    )


def _choose_commit(
    hub: Hub, ref: KernelRef, refs: Refs, store: Store, settings: Settings
) -> tuple[str, str]:
    """Return what was chosen, in words, and its commit."""
    branches = {branch.name: branch.commit for branch in refs.branches}
    if ref.revision is None:
        try:
            branch = choose_branch(branches, ref.version)
        except FormatError as err:
            raise VersionNotFoundError(
                str(ref.repo), ref.version, versions_of(refs), f"{ref.repo} on {hub.url}: {err}"
            ) from err
        return f"branch {branch}", branches[branch]
    tags = {tag.name: tag.commit for tag in refs.tags}
    name = ref.revision
    if (commit := branches.get(name.removeprefix("refs/heads/"))) is not None:
        return f"branch {name}", commit
    if (commit := tags.get(name.removeprefix("refs/tags/"))) is not None:
        return f"tag {name}", commit
    if SHORT_COMMIT.fullmatch(name) or name.startswith("refs/"):
        known = {*branches.values(), *tags.values()}
        found = {commit for commit in known if commit.startswith(name)}
        found.update(find_cached_commits(store, hub.url, ref.repo, name) if "/" not in name else ())
        if not found and not settings.offline:
            found = set(filter(None, [hub.find_commit(ref.repo, name)]))
        if len(found) == 1:
            commit = found.pop()
            return f"commit {commit}", commit
        if found:
            raise RevisionNotFoundError(
                str(ref.repo),
                name,
                f"{ref.repo}: {name} may mean any of {', '.join(sorted(found))}.",
            )
    raise RevisionNotFoundError(
        str(ref.repo),
        name,
        f"{ref.repo} on {hub.url} has no branch, tag or commit {name!r}. "
        f"Branches: {', '.join(sorted(branches)) or 'none'}; tags: {', '.join(sorted(tags)) or 'none'}.",
    )


def _announce(located: Located) -> None:
    if not log.is_new(located.hub.url, str(located.ref), located.commit):
        return
    log.logger().info(
        "%s: taking %s (commit %s) from %s",
        located.ref,
        located.taken,
        located.commit[:12],
        located.hub.url,
    )


def _not_cached(ref: KernelRef) -> NotCachedError:
    return NotCachedError(
        str(ref.repo),
        f"{ref} is not in the cache, and HF_HUB_OFFLINE forbids asking a hub. "
        "Load it once with the network on, with the same KERNELS_CACHE and KERNELS_HUB; "
        "LOCAL_KERNELS or get_local_kernel load a copy on disk.",
    )
