"""Decides whether a kernel's code may run: who is trusted, and who consented.

A directory hub that the settings name is trusted. Of any other hub's owner, the hub itself says
whether it is a trusted publisher; that answer is part of the repository's record. Where it says
no, somebody must consent: the caller for one call (never stored), or the user for good, with
``kernels trust add``, which writes ``trust.json`` in the user's configuration directory: an owner on
a hub, or the digest of a variant, wherever it comes from.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kernel_spec.document import UNREADABLE, read_plain
from kernel_spec.names import RepoId
from kernels.answers import is_silent, note_silence
from kernels.errors import HubUnreachableError, SettingsError, TrustError
from kernels.hub import Hub
from kernels.settings import Settings
from kernels.source import Located
from kernels.store import Record, Store, read_record, write_record, write_whole

FILE_NAME = "trust.json"
FORMAT = 1

# True: everything; otherwise the repositories, by id, that the caller trusts.
Consent = bool | Collection[str]


class TrustedOwner(NamedTuple):
    """An owner on a hub whose kernels the user runs: equal names on two hubs are two owners."""

    owner: str
    hub: str


def require_trust(
    located: Located, settings: Settings, consent: Consent, *, refresh: bool = False
) -> None:
    """Return where the code of a kernel may run.

    Args:
        located: the kernel and the hub that has it.
        settings: where lasting consent and the record are.
        consent: what the caller consents to.
        refresh: ask the hub even where its last answer is fresh.

    Raises:
        HubUnreachableError: whether the publisher is trusted is not known and cannot be asked.
        TrustError: the publisher is not trusted and nobody consented.
    """
    repo = located.ref.repo
    if consented(repo, consent) or located.hub.is_directory:
        return
    if TrustedOwner(repo.owner, located.hub.url) in read_trusted(settings.config).owners:
        return
    store = Store(settings.cache)
    record = read_record(store, located.hub.url, repo)
    trusted = _publisher_is_trusted(located, store, record, settings, refresh=refresh)
    if not trusted:
        raise TrustError(str(repo), _refusal(repo, located.hub, trusted, settings))


def consented(repo: RepoId, consent: Consent) -> bool:
    """Say whether the caller consents to run the code of a repository.

    Raises:
        TrustError: ``consent`` is neither; a text would consent to every part of itself.
    """
    if isinstance(consent, bool):
        return consent
    if isinstance(consent, str) or not isinstance(consent, Collection):
        raise TrustError(
            str(repo),
            f"trust_remote_code: expected True, False or a list of ids, found {consent!r}.",
        )
    return str(repo) in consent


def _publisher_is_trusted(
    located: Located, store: Store, record: Record | None, settings: Settings, *, refresh: bool
) -> bool | None:
    """Return the hub's answer, remembered or asked for; None where offline and never asked."""
    known = record.trusted if record is not None else None
    if settings.offline or (record is not None and _will_do(record, located, settings, refresh)):
        return known
    from kernels.single_flight import ask_once

    hub, repo = located.hub, located.ref.repo
    before = 0.0 if record is None else record.trust_checked

    def find() -> bool | None:
        found = read_record(store, hub.url, repo)
        # What was known before is what this call was not content with.
        return found.trusted if found is not None and found.trust_checked != before else None

    try:
        return ask_once(
            store, ("record", hub.url, str(repo)), find, lambda: _ask_trust(located, store)
        )
    except HubUnreachableError:
        if known is None or refresh:
            raise
        note_silence(hub)
        return known


def _will_do(record: Record, located: Located, settings: Settings, refresh: bool) -> bool:
    """Say whether what a hub said of an owner need not be asked again."""
    if record.trusted is None:
        return False
    if located.refs is None and record.trusted:
        # A full commit with all its files in the cache never needs the network.
        return True
    is_fresh = 0 <= time.time() - record.trust_checked < settings.ref_ttl
    return not refresh and (is_fresh or is_silent(located.hub))


def _ask_trust(located: Located, store: Store) -> bool:
    hub, repo = located.hub, located.ref.repo
    organization = hub.read_organization(repo.owner)
    trusted = organization is not None and organization.trusted_publisher
    base = read_record(store, hub.url, repo) or Record(checked=0.0, refs=located.refs)
    write_record(store, hub.url, repo, base._replace(trusted=trusted, trust_checked=time.time()))
    return trusted


def _refusal(repo: RepoId, hub: Hub, answer: bool | None, settings: Settings) -> str:
    found = (
        f"{settings.offline_cause} forbids asking a hub, and {hub.url} was never asked whether {repo.owner!r} is a trusted publisher"
        if answer is None
        else f"{hub.url} does not name {repo.owner!r} a trusted kernel publisher"
    )
    return (
        f"{repo} was not loaded: loading a kernel runs its code, and {found}. "
        "If you trust it, consent for this call with trust_remote_code=True (or a list of "
        f"repository ids), or for good with: kernels trust add {repo.owner}"
    )


class Trusted(NamedTuple):
    """What the user trusts for good: owners on hubs, and variants by digest."""

    owners: frozenset[TrustedOwner] = frozenset()
    digests: frozenset[str] = frozenset()


def read_trusted(config: Path) -> Trusted:
    """Read what the user trusts for good.

    Raises:
        SettingsError: the file is not as this client writes it.
    """
    path = config / FILE_NAME
    try:
        document = json.loads(read_plain(path))
        if document["format"] != FORMAT:
            raise SettingsError(
                f"{path}: expected format {FORMAT}, found {document['format']!r}; "
                "a later client wrote it."
            )
        return Trusted(
            frozenset(TrustedOwner(str(e["owner"]), str(e["hub"])) for e in document["owners"]),
            frozenset(map(str, document.get("digests", []))),
        )
    except FileNotFoundError:
        return Trusted()
    except SettingsError:
        raise
    except UNREADABLE as err:
        raise SettingsError(f"{path}: cannot be read: {err}. Correct or remove the file.") from err


@contextmanager
def editing_trusted(config: Path) -> Iterator[Trusted]:
    """Give what the user trusts for good, to be written before another process reads it to change it.

    Raises:
        SettingsError: the file is not as this client writes it.
        OSError: it cannot be written.
    """
    from filelock import FileLock

    config.mkdir(parents=True, exist_ok=True)
    with FileLock(config / f"{FILE_NAME}.lock"):
        yield read_trusted(config)


def write_trusted(config: Path, trusted: Trusted) -> None:
    """Write what the user trusts for good; the file appears whole. Read it by :func:`editing_trusted`.

    Raises:
        OSError: it cannot be written.
    """
    owners = [{"owner": entry.owner, "hub": entry.hub} for entry in sorted(trusted.owners)]
    document = {"format": FORMAT, "owners": owners, "digests": sorted(trusted.digests)}
    write_whole(config / FILE_NAME, json.dumps(document, indent=2).encode() + b"\n")
