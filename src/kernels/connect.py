"""The hub that a URL of the settings names."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.hub import Hub


def open_hub(
    url: str,
    *,
    send_token: bool = False,
    credentials: str = "",
    user_agent: str | Mapping[str, str] | None = None,
    telemetry: bool = True,
) -> Hub:
    """Return the hub at a ``file://``, ``http://`` or ``https://`` URL; asks it nothing yet.

    Args:
        url: where the hub is.
        send_token: whether the user's Hugging Face token may be sent there.
        credentials: ``user:password`` to be sent there.
        user_agent: what the calling library adds to the header of that name.
        telemetry: whether that header may describe this machine.
    """
    if url.lower().startswith("file://"):
        from kernels.hub_directory import open_directory_hub

        return open_directory_hub(url)
    from kernels.hub_http import HttpHub

    return HttpHub(
        url=url.rstrip("/"),
        send_token=send_token,
        credentials=credentials,
        user_agent=user_agent,
        telemetry=telemetry,
    )
