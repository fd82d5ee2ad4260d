"""What an operator decides about a hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSettings:
    """The settings of a hub.

    Attributes:
        root: the directory hub that is served.
        trusted_owners: the owners that this hub calls trusted publishers. Clients run the code
            of a trusted publisher without asking.
        public_url: the URL that clients reach the hub by, where it stands behind a proxy; None
            where the ``Host`` header of a request says it.
    """

    root: Path
    trusted_owners: frozenset[str] = frozenset()
    public_url: str | None = None
