"""What every handler is given: the hub's settings, its catalogue, and how to write where anybody may."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_hub.auth import TokenFile
from kernel_hub.errors import ReadOnlyError
from kernel_hub.proposing import Proposing
from kernel_hub.publisher import Publisher
from kernel_hub.service.catalogue import Catalogue
from kernel_hub.settings import HubSettings
from kernel_hub.signer import Signer

READ_ONLY = (
    "This hub is read-only: it serves a directory. "
    "Publish by writing to that directory, on the machine or share that holds it; "
    "its operator can let holders of tokens write over HTTP (kernel-hub serve --tokens FILE)."
)


@dataclass(frozen=True, slots=True)
class Writing:
    """What handlers need of a hub that is written to over HTTP."""

    publisher: Publisher
    proposing: Proposing
    tokens: TokenFile
    signer: Signer


@dataclass(frozen=True, slots=True)
class Hub:
    """What a handler needs: the settings, the catalogue, and how to write, where anybody may."""

    settings: HubSettings
    catalogue: Catalogue
    writing: Writing | None = None

    def get_writing(self) -> Writing:
        """Return how to write.

        Raises:
            ReadOnlyError: nobody may.
        """
        if self.writing is None:
            raise ReadOnlyError(READ_ONLY)
        return self.writing
