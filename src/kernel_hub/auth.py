"""Who may write: the holders of tokens, of which a file keeps the hashes.

The file is TOML, for people to read and edit::

    [[token]]
    name = "ci"
    sha256 = "<64 hex digits: the hash of the token>"
    owners = ["acme"]
    may = "write"          # or "propose": ask for changes, and make none
    expires = 2027-01-31   # its last day, in UTC; without it the token has none

Whoever holds the token may write every repository of these owners. Taking the entry out of the
file takes the right away, at once.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any

from kernel_hub.errors import TokenFileError
from kernel_spec.names import SHA256, find_lookalike, is_owner
from kernel_spec.whole_file import write_whole

# A prefix lets scanners of secrets find one that was committed by mistake.
PREFIX = "khub_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)
_KEYS = {"name", "sha256", "owners"}
_HEAD = "# Who may write to this hub; made by kernel-hub add-token. To take a right away, delete its entry.\n"


class Right(StrEnum):
    """What the holder of a token may do."""

    WRITE = "write"
    PROPOSE = "propose"


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """The right to write.

    Attributes:
        name: what the holder is called.
        sha256: the hash of the secret, hex.
        owners: whose repositories may be written.
        may: what may be done with them.
        expires: the last day that it is good for, in UTC; None: it does not expire.
    """

    name: str
    sha256: str
    owners: frozenset[str]
    may: Right = Right.WRITE
    expires: date | None = None

    def is_expired(self) -> bool:
        """Say whether its last day is over."""
        return self.expires is not None and datetime.now(UTC).date() > self.expires


class TokenFile:
    """The tokens in a file, read anew whenever it was written."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._lock = Lock()
        self._known: tuple[tuple[int, ...], tuple[Token, ...]] | None = None

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret, or None.

        Raises:
            TokenFileError: the file cannot be used.
        """
        found = hash_secret(secret)
        # Each is compared, and in constant time: how long it takes tells nothing.
        fitting = [each for each in self.read() if hmac.compare_digest(each.sha256, found)]
        return fitting[0] if fitting else None

    def read(self) -> tuple[Token, ...]:
        """Return the tokens.

        Raises:
            TokenFileError: the file cannot be used.
        """
        with self._lock:
            try:
                status = self.place.stat()
            except OSError as err:
                raise TokenFileError(
                    f"{self.place}: cannot be read ({err.strerror}); kernel-hub add-token makes it"
                ) from err
            if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise TokenFileError(
                    f"{self.place}: others may write to it, and so give themselves rights; "
                    f"run: chmod 600 {self.place}"
                )
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if self._known is None or self._known[0] != stamp:
                self._known = (stamp, read_tokens(self.place))
            return self._known[1]


def read_tokens(place: Path) -> tuple[Token, ...]:
    """Read a file of tokens.

    Raises:
        TokenFileError: naming all that is wrong with it.
    """
    try:
        document = tomllib.loads(place.read_text("utf-8"))
    except OSError as err:
        raise TokenFileError(f"{place}: cannot be read ({err.strerror})") from err
    except (ValueError, RecursionError) as err:
        raise TokenFileError(
            f"{place}: not TOML: {err}; expected the [[token]] tables that kernel-hub add-token writes"
        ) from err
    faults: list[str] = []
    entries = document.get("token", [])
    if document.keys() - {"token"} or not isinstance(entries, list):
        faults.append("expected nothing but [[token]] tables")
        entries = []
    tokens = [_read_token(entry, f"token {n}", faults) for n, entry in enumerate(entries, 1)]
    if len({token.name for token in tokens}) < len(tokens):
        faults.append("two tokens have one name")
    if faults:
        raise TokenFileError("\n".join(f"{place}: {fault}" for fault in faults))
    return tuple(tokens)


def _read_token(entry: Any, where: str, faults: list[str]) -> Token:
    table: Mapping[str, Any] = entry if isinstance(entry, dict) else {}
    name, sha256, owners = (table.get(key) for key in ("name", "sha256", "owners"))
    if not _KEYS <= table.keys() <= _KEYS | {"may", "expires"}:
        faults.append(
            f"{where}: expected name, sha256 and owners, and perhaps may and expires, found {sorted(table)}"
        )
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        faults.append(f"{where}: name: expected letters, digits, '_', '.' and '-', found {name!r}")
    # Not what was found: somebody may have written the token itself there.
    if not isinstance(sha256, str) or SHA256.fullmatch(sha256) is None:
        faults.append(f"{where}: sha256: expected 64 hex digits in small letters")
    listed = owners if isinstance(owners, list) else []
    if not listed or not all(isinstance(owner, str) and is_owner(owner) for owner in listed):
        faults.append(f"{where}: owners: expected a list of owners' names, found {owners!r}")
    names = frozenset(owner for owner in listed if isinstance(owner, str))
    may, expires = table.get("may", Right.WRITE), table.get("expires")
    if may not in list(Right):
        faults.append(f"{where}: may: expected write or propose, found {may!r}")
        may = Right.PROPOSE
    if expires is not None and type(expires) is not date:
        faults.append(f"{where}: expires: expected a day, such as 2027-01-31, found {expires!s}")
        expires = None
    return Token(name=str(name), sha256=str(sha256), owners=names, may=Right(may), expires=expires)


def add_token(
    place: Path,
    *,
    name: str,
    owners: Iterable[str],
    may: Right = Right.WRITE,
    days: int | None = None,
) -> str:
    """Add a new token to a file, which is made if it is not there, and return its secret.

    The secret stands nowhere else.

    Args:
        place: the file.
        name: what the holder is called.
        owners: whose repositories it is for.
        may: what may be done with them.
        days: how many days it is good for, today among them; None: it does not expire.

    Raises:
        TokenFileError: the file cannot be used, the name is taken, or a name cannot be one.
    """
    wanted = tuple(dict.fromkeys(owners))
    known = read_tokens(place) if place.exists() else ()
    if faults := list(_find_faults(name, wanted, known)):
        raise TokenFileError("\n".join(f"{place}: {fault}" for fault in faults))
    secret = PREFIX + secrets.token_urlsafe(32)
    listed = ", ".join(f'"{owner}"' for owner in wanted)
    entry = f'\n[[token]]\nname = "{name}"\nsha256 = "{hash_secret(secret)}"\nowners = [{listed}]\n'
    if may is not Right.WRITE:
        entry += f'may = "{may}"\n'
    if days is not None:
        entry += f"expires = {datetime.now(UTC).date() + timedelta(days=days - 1)}\n"
    text = place.read_text("utf-8") if place.exists() else _HEAD
    try:
        write_whole(place, (text + entry).encode(), mode=0o600)
    except FileNotFoundError as err:
        raise TokenFileError(
            f"{place}: its folder does not exist; make it, or name another"
        ) from err
    except OSError as err:
        raise TokenFileError(f"{place}: cannot be written ({err.strerror})") from err
    return secret


def _find_faults(name: str, wanted: Iterable[str], known: Iterable[Token]) -> Iterator[str]:
    """Say why a token cannot be added to those that are known."""
    if _NAME.fullmatch(name) is None:
        yield f"{name}: expected letters, digits, '_', '.' and '-', at most 63"
    if any(token.name == name for token in known):
        yield f"has a token {name}; delete its entry first, or choose another name"
    owners = {owner for token in known for owner in token.owners}
    for owner in wanted:
        if not is_owner(owner):
            yield f"--owner {owner}: not the name of an owner; expected the part of acme/toy before the slash"
        elif owner not in owners and (other := find_lookalike(owner, (*owners, *wanted))):
            yield (
                f"--owner {owner}: would be another owner than {other}, and differ in case only; write "
                "it as the hub's folder has it"
            )


def hash_secret(secret: str) -> str:
    """Return what the file keeps of a secret. It has 256 random bits, so one round is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
