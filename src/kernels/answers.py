"""What hubs say of a repository: from this process's memory, from the record, or from the hub.

A record holds for ``KERNELS_REF_TTL`` seconds, and beyond that where its hub gives no answer. A
directory hub costs no request: it is read at a process's first call, and again when a ref of it
changes.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from kernel_spec.names import RepoId
from kernel_spec.wire import Refs
from kernels import log
from kernels.errors import HubUnreachableError, RepoNotFoundError
from kernels.hub import Hub
from kernels.settings import Settings
from kernels.store import Record, Store, read_record, write_record

# A hub that gave no answer is not asked again for so long, where a record can stand in.
RETRY_SECONDS = 60.0


class Answer(NamedTuple):
    """The refs of a repository, and for how long they may be taken for true.

    Attributes:
        refs: its branches and tags.
        stamp: the value of a directory hub's refs when they were read.
        expires: until when the answer holds, in seconds since 1970.
        remembered: whether it came from a record and so may be old.
    """

    refs: Refs
    stamp: tuple[int, ...] | None
    expires: float
    remembered: bool


# What this process has read of directory hubs, by hub, repository and cache.
_directories: dict[tuple[str, RepoId, Store], tuple[tuple[int, ...], Refs]] = {}
_silent_until: dict[str, float] = {}


def answer_of(hub: Hub, repo: RepoId, store: Store, settings: Settings, *, refresh: bool) -> Answer:
    """Return the refs of a repository on a hub: from memory, the record, or the hub."""
    if hub.is_directory and not refresh:
        known = _directories.get((hub.url, repo, store))
        stamp = hub.stamp(repo)
        if known is not None and stamp is not None and known[0] == stamp:
            return Answer(refs=known[1], stamp=stamp, expires=float("inf"), remembered=False)
    record = read_record(store, hub.url, repo)
    now = time.time()
    fresh = record is not None and 0 <= now - record.checked < settings.ref_ttl
    silent = is_silent(hub)
    if settings.offline or (
        (fresh or (silent and record)) and not refresh and not hub.is_directory
    ):
        if record is None or record.refs is None:
            raise RepoNotFoundError(str(repo), [hub.url])
        expires = float("inf") if settings.offline else record.checked + settings.ref_ttl
        return Answer(refs=record.refs, stamp=None, expires=expires, remembered=True)
    if hub.is_directory:
        return _ask(hub, repo, store, settings, record, refresh=refresh)
    return _ask_once(hub, repo, store, settings, record, refresh=refresh)


def _ask_once(
    hub: Hub,
    repo: RepoId,
    store: Store,
    settings: Settings,
    known: Record | None,
    *,
    refresh: bool,
) -> Answer:
    """Ask for all processes of this host that want to know it now."""
    from kernels.single_flight import ask_once

    def find() -> Answer | None:
        record = read_record(store, hub.url, repo)
        if record is None or record.refs is None:
            return None
        if known is not None and record.checked == known.checked:
            # What was known before is what this call was not content with.
            return None
        expires = record.checked + settings.ref_ttl
        return Answer(refs=record.refs, stamp=None, expires=expires, remembered=False)

    def ask() -> Answer:
        record = read_record(store, hub.url, repo)
        return _ask(hub, repo, store, settings, record, refresh=refresh)

    return ask_once(store, ("record", hub.url, str(repo)), find, ask)


def _ask(
    hub: Hub,
    repo: RepoId,
    store: Store,
    settings: Settings,
    record: Record | None,
    *,
    refresh: bool,
) -> Answer:
    stamp = hub.stamp(repo)
    asked = time.time()
    try:
        refs = hub.read_refs(repo)
    except HubUnreachableError as err:
        if record is None or record.refs is None or refresh:
            raise
        note_silence(hub)
        _warn_of_age(hub, repo, record, err)
        return Answer(refs=record.refs, stamp=None, expires=0.0, remembered=True)
    except RepoNotFoundError:
        if not hub.is_directory:
            write_record(store, hub.url, repo, Record(checked=asked, refs=None))
        raise
    if hub.is_directory:
        if stamp is not None:
            _directories[hub.url, repo, store] = (stamp, refs)
        if record is None or record.refs != refs:
            write_record(store, hub.url, repo, Record(checked=asked, refs=refs))
        return Answer(refs=refs, stamp=stamp, expires=float("inf"), remembered=False)
    fresh = (
        record._replace(checked=asked, refs=refs) if record else Record(checked=asked, refs=refs)
    )
    write_record(store, hub.url, repo, fresh)
    return Answer(refs=refs, stamp=None, expires=asked + settings.ref_ttl, remembered=False)


def is_silent(hub: Hub) -> bool:
    """Say whether a hub gave no answer a moment ago, so that a record is taken at once."""
    # A clock that was set back does not make it silent for longer.
    return 0 < _silent_until.get(hub.url, 0.0) - time.time() <= RETRY_SECONDS


def note_silence(hub: Hub) -> None:
    """Remember that a hub gave no answer."""
    _silent_until[hub.url] = time.time() + RETRY_SECONDS


def forget() -> None:
    """Forget what this process has read, so that the next call reads it again."""
    _directories.clear()
    _silent_until.clear()
    log.forget()


def _warn_of_age(hub: Hub, repo: RepoId, record: Record, err: HubUnreachableError) -> None:
    if not log.is_new("age", hub.url, str(repo)):
        return
    log.logger().warning(
        "%s: using what %s said %s ago, because it gives no answer now: %s",
        repo,
        hub.url,
        _format_age(time.time() - record.checked),
        err,
    )


def _format_age(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
