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


class _Question(NamedTuple):
    """Which refs are asked for, of which hub, and whether its last answer will do."""

    hub: Hub
    repo: RepoId
    store: Store
    settings: Settings
    refresh: bool

    def read_record(self) -> Record | None:
        return read_record(self.store, self.hub.url, self.repo)

    def write_record(self, record: Record) -> None:
        write_record(self.store, self.hub.url, self.repo, record)


def answer_of(hub: Hub, repo: RepoId, store: Store, settings: Settings, *, refresh: bool) -> Answer:
    """Return the refs of a repository on a hub: from memory, the record, or the hub.

    Raises:
        HubAccessError, HubUnreachableError: the hub refuses, or does not answer and no record helps.
        RepoNotFoundError: there is no such repository; offline, none that is remembered.
    """
    question = _Question(hub, repo, store, settings, refresh)
    if hub.is_directory and not refresh and (known := _recall(question)) is not None:
        return known
    record = question.read_record()
    if settings.offline:
        return _answer_by(question, record, expires=float("inf"))
    if hub.is_directory:
        return _ask_directory(question, record)
    if record is not None and not refresh:
        is_fresh = 0 <= time.time() - record.checked < settings.ref_ttl
        if is_fresh or is_silent(hub):
            return _answer_by(question, record, expires=record.checked + settings.ref_ttl)
    return _ask_once(question, record)


def _recall(question: _Question) -> Answer | None:
    """Return what this process has read of a directory hub, if no ref has changed since."""
    known = _directories.get((question.hub.url, question.repo, question.store))
    stamp = question.hub.stamp(question.repo)
    if known is None or stamp is None or known[0] != stamp:
        return None
    return Answer(refs=known[1], stamp=stamp, expires=float("inf"), remembered=False)


def _answer_by(question: _Question, record: Record | None, *, expires: float) -> Answer:
    if record is None or record.refs is None:
        raise RepoNotFoundError(str(question.repo), [question.hub.url])
    return Answer(refs=record.refs, stamp=None, expires=expires, remembered=True)


def _ask_directory(question: _Question, record: Record | None) -> Answer:
    hub, repo = question.hub, question.repo
    stamp, asked = hub.stamp(repo), time.time()
    try:
        refs = hub.read_refs(repo)
    except HubUnreachableError as err:
        return _stand_in(question, record, err)
    if stamp is not None:
        _directories[hub.url, repo, question.store] = (stamp, refs)
    if record is None or record.refs != refs:
        question.write_record(Record(checked=asked, refs=refs))
    return Answer(refs=refs, stamp=stamp, expires=float("inf"), remembered=False)


def _ask_once(question: _Question, known: Record | None) -> Answer:
    """Ask for all processes of this host that want to know it now."""
    from kernels.single_flight import ask_once

    def find() -> Answer | None:
        record = question.read_record()
        if record is None or record.refs is None:
            return None
        if known is not None and record.checked == known.checked:
            # What was known before is what this call was not content with.
            return None
        expires = record.checked + question.settings.ref_ttl
        return Answer(refs=record.refs, stamp=None, expires=expires, remembered=False)

    subject = ("record", question.hub.url, str(question.repo))
    return ask_once(question.store, subject, find, lambda: _ask(question, question.read_record()))


def _ask(question: _Question, record: Record | None) -> Answer:
    asked = time.time()
    try:
        refs = question.hub.read_refs(question.repo)
    except HubUnreachableError as err:
        return _stand_in(question, record, err)
    except RepoNotFoundError:
        question.write_record(Record(checked=asked, refs=None))
        raise
    base = record or Record(checked=asked, refs=refs)
    question.write_record(base._replace(checked=asked, refs=refs))
    expires = asked + question.settings.ref_ttl
    return Answer(refs=refs, stamp=None, expires=expires, remembered=False)


def _stand_in(question: _Question, record: Record | None, err: HubUnreachableError) -> Answer:
    """Take the record, however old, where the hub does not answer and that will do."""
    if record is None or record.refs is None or question.refresh:
        raise err
    note_silence(question.hub)
    _warn_of_age(question.hub, question.repo, record, err)
    return Answer(refs=record.refs, stamp=None, expires=0.0, remembered=True)


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
