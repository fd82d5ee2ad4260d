"""Finds where a kernel comes from: which hub, which commit, which files.

The hubs of the settings are asked in their order; only a definite "there is no such repository"
moves on to the next. What a hub said is remembered in the cache (one record per repository) and
holds for ``KERNELS_REF_TTL`` seconds. A full commit id whose files are remembered needs no hub at
all. Offline the records alone decide, however old they are; a hub that is a folder needs no network
and is read all the same. A repository that says it has moved is followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kernel_spec.errors import FormatError, KernelError
from kernel_spec.names import COMMIT, RepoId
from kernel_spec.wire import Refs, TreeFile
from kernels import log
from kernels.answers import answer_of
from kernels.connect import open_hubs, reach
from kernels.errors import (
    NotCachedError,
    RedirectError,
    RepoNotFoundError,
    RevisionNotFoundError,
)
from kernels.hub import Hub
from kernels.redirect import STATUS_BYTES, STATUS_NAME, Redirect, parse_status
from kernels.revision import KernelRef, choose_commit
from kernels.settings import Settings, hubs_of
from kernels.store import Store, read_kept, read_tree, write_kept
from kernels.trees import not_cached, tree_of, variants_of

if TYPE_CHECKING:
    from kernels.fetch import Wanted


class Watch(NamedTuple):
    """The refs of a repository on a directory hub, as they were when they were read."""

    hub: Hub
    repo: RepoId
    stamp: tuple[int, ...]


class Located(NamedTuple):
    """Where a kernel comes from.

    Attributes:
        ref: what was asked for; where the repository has moved, what that means at its new place.
        hub: the hub that has it.
        commit: the commit that it means there.
        taken: the branch, tag or commit that was chosen.
        files: every file below ``build/`` at that commit, and its status if it has one; paths
            from the repository's root.
        refs: the branches and tags, or None where a full commit made them needless.
        stamp: the value of the hub's refs when they were read, for a directory hub.
        expires: until when this holds, in seconds since 1970, for any other hub.
        on_disk: whether the hub can be read offline: it is a folder, or a snapshot on this disk.
        moved: the repositories that named this one as their new place.
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
    moved: tuple[Located, ...] = ()

    @property
    def watched(self) -> tuple[Watch, ...]:
        """What must not have changed on directory hubs for this to hold."""
        stages = (*self.moved, self)
        return tuple(
            Watch(stage.hub, stage.ref.repo, stage.stamp)
            for stage in stages
            if stage.stamp is not None
        )


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
        RedirectError: repositories name each other as their new place.
        RepoNotFoundError: no hub has the repository.
        RevisionNotFoundError: the repository has no such version, branch, tag or commit.
    """
    moved: tuple[Located, ...] = ()
    while True:
        try:
            located = _locate(ref, settings, refresh=refresh, user_agent=user_agent)
        except NotCachedError:
            if (snapshot := _locate_snapshot(ref, settings)) is None:
                raise
            located = snapshot
        redirect = _read_redirect(located, settings)
        if redirect is None:
            _announce(located)
            return located._replace(moved=moved, expires=min(s.expires for s in (*moved, located)))
        moved = (*moved, located)
        ref = _follow(ref, redirect, moved)


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
        return located
    if skipped and not refresh and not _any_offline(hubs, ref.repo, settings):
        # "Not there" may have come from records: make sure.
        return _locate(ref, settings, refresh=True, user_agent=user_agent)
    raise _not_found(ref, hubs, settings)


def offered(located: Located) -> dict[str, Wanted]:
    """Return what the hub offers there, by the names of the variants."""
    from kernels.fetch import Wanted  # `import kernels` fetches nothing

    return {
        name: Wanted(
            hub=located.hub,
            repo=located.ref.repo,
            commit=located.commit,
            variant=name,
            files=files,
        )
        for name, files in variants_of(located.files).items()
    }


def read_refs(repo: RepoId, settings: Settings) -> tuple[Hub, Refs]:
    """Ask the hubs for the refs of a repository, records aside unless offline.

    Raises:
        As :func:`locate`.
    """
    store = Store(settings.cache)
    hubs = open_hubs(repo, settings)
    for hub in hubs:
        here = reach(hub, repo, settings)
        try:
            return hub, answer_of(hub, repo, store, here, refresh=not here.offline).refs
        except RepoNotFoundError:
            continue
    raise _not_found(KernelRef(repo), hubs, settings)


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
    raise _not_found(ref, hubs, settings)


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
                taken, commit = choose_commit(hub, ref, refs, Store(settings.cache), settings)
            files = hub.read_tree(ref.repo, commit)
        except (RepoNotFoundError, RevisionNotFoundError):
            continue
        except OSError as err:
            log.logger().warning(
                "%s: its snapshot in %s cannot be read: %s", ref.repo, hub.cache, err
            )
            continue
        if files:
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
        taken, commit = choose_commit(hub, ref, answer.refs, store, settings)
    except RevisionNotFoundError as err:
        if answer.remembered and not settings.offline and not refresh:
            # The record may be older than what is asked for.
            return _locate_on(hub, ref, store, settings, refresh=True)
        if (main := _find_moved(hub, ref.repo, answer.refs, settings)) is None:
            raise err from None
        # What is asked for is not here because all of it is elsewhere.
        taken, commit = "branch main", main
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


def _find_moved(hub: Hub, repo: RepoId, refs: Refs, settings: Settings) -> str | None:
    """Return the commit of ``main`` where that has a status; None also where that is not known."""
    commits = [ref.commit for ref in refs.branches if ref.name == "main"]
    try:
        files = tree_of(hub, repo, commits[0], settings) if commits else ()
    except KernelError:
        return None
    return commits[0] if any(file.path == STATUS_NAME for file in files) else None


def _read_redirect(located: Located, settings: Settings) -> Redirect | None:
    """Return where the repository has moved, or None where it has not."""
    file = next((file for file in located.files if file.path == STATUS_NAME), None)
    if file is None:
        return None
    from kernel_spec.blob import is_promised
    from kernels.fetch import read_file

    repo, store = located.ref.repo, Store(settings.cache)
    if file.size > STATUS_BYTES:
        raise RedirectError(str(repo), f"{repo}: {STATUS_NAME} has {file.size} bytes.")
    data = read_kept(store, "status", file.sha256 or file.oid)
    if data is None or not is_promised(file, data):
        if reach(located.hub, repo, settings).offline and not located.on_disk:
            raise not_cached(located.ref, settings)
        data = b"".join(read_file(located.hub, repo, located.commit, file))
        write_kept(store, "status", file.sha256 or file.oid, data)
    try:
        return parse_status(data)
    except FormatError as err:
        raise RedirectError(str(repo), f"{repo} on {located.hub.url}: {err}.") from None


def _follow(ref: KernelRef, redirect: Redirect, moved: tuple[Located, ...]) -> KernelRef:
    """Return what a request means at the new place of a repository.

    Raises:
        RedirectError: the new place was left before.
    """
    names = [*(str(stage.ref.repo) for stage in moved), str(redirect.destination)]
    if names[-1] in names[:-1]:
        raise RedirectError(
            names[0], f"{names[0]} has moved in a circle: {' -> '.join(names)}. Tell its publisher."
        )
    if log.is_new("moved", *names):
        log.logger().warning("%s has moved to %s: ask for it by that name", *names[-2:])
    if redirect.revision is not None:
        return KernelRef(redirect.destination, revision=redirect.revision)
    if ref.revision is not None:
        # Branches and commits of the old place mean nothing at the new one.
        return KernelRef(redirect.destination)
    return ref._replace(repo=redirect.destination)


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


def _any_offline(hubs: tuple[Hub, ...], repo: RepoId, settings: Settings) -> bool:
    return any(reach(hub, repo, settings).offline for hub in hubs)


def _not_found(
    ref: KernelRef, hubs: tuple[Hub, ...], settings: Settings
) -> NotCachedError | RepoNotFoundError:
    if _any_offline(hubs, ref.repo, settings):
        return not_cached(ref, settings)
    return RepoNotFoundError(
        str(ref.repo),
        [hub.url for hub in hubs],
        similar=[name for hub in hubs for name in hub.find_similar(ref.repo)],
        models=[hub.url for hub in hubs if hub.has_model(ref.repo)],
    )
