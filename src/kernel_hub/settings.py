"""What an operator decides about a hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_FILE_SIZE = 8 * 1024**3


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSettings:
    """The settings of a hub.

    Attributes:
        root: the directory hub that is served.
        trusted_owners: the owners that this hub calls trusted publishers. Clients run the code
            of a trusted publisher without asking.
        public_url: the URL that clients reach the hub by, where it stands behind a proxy; None
            where the ``Host`` header of a request says it.
        tokens: the file that says who may write; None: the hub is read-only.
        max_file_size: the size in bytes of the largest file that is taken.
    """

    root: Path
    trusted_owners: frozenset[str] = frozenset()
    public_url: str | None = None
    tokens: Path | None = None
    max_file_size: int = MAX_FILE_SIZE
