"""The hubs of the settings that may hold a repository, opened; and whether one is reached without a network."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_spec.names import RepoId
from kernels.hub import Hub
from kernels.hub_address import HubAddress
from kernels.settings import Settings, hubs_of


def open_hubs(
    repo: RepoId, settings: Settings, *, user_agent: str | Mapping[str, str] | None = None
) -> tuple[Hub, ...]:
    """Return the hubs that may hold a repository, in order; asks them nothing yet.

    Args:
        repo: the repository.
        settings: which hubs there are; the user's token is for one of them.
        user_agent: what the calling library adds to the header of that name.
    """
    return tuple(_open(address, settings, user_agent) for address in hubs_of(settings, repo.owner))


def _open(
    address: HubAddress, settings: Settings, user_agent: str | Mapping[str, str] | None
) -> Hub:
    if address.url.lower().startswith("file://"):
        from kernels.hub_directory import open_directory_hub

        return open_directory_hub(address.url)
    from kernels.hub_http import HttpHub

    return HttpHub(
        url=address.url,
        send_token=address.url == settings.token_hub,
        credentials=address.credentials,
        user_agent=user_agent,
        telemetry=settings.telemetry,
    )


def reach(hub: Hub, repo: RepoId, settings: Settings) -> Settings:
    """Return the settings as they hold for one hub: reading a folder that is there needs no network."""
    if settings.offline and hub.is_directory and hub.stamp(repo) is not None:
        return settings._replace(offline=False)
    return settings
