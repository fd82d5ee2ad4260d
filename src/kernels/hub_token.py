"""The user's token for a hub: read where ``huggingface_hub`` keeps it, and judged before it is sent."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from kernels.errors import SettingsError
from kernels.settings import has_token_variable

# RFC 6750, 2.1, and what else fits into a header.
_TOKEN = re.compile(r"[\x21-\x7e]+")


def read_token(url: str) -> str | None:
    """Return the user's token, for the hub at ``url``; ``None`` where there is none.

    Raises:
        SettingsError: the file that holds it cannot be read, or what is there is no token.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_token_to_send  # type: ignore[attr-defined]

    try:
        place = Path(constants.HF_TOKEN_PATH)
        if not has_token_variable() and place.is_fifo():
            raise OSError(errno.EINVAL, "not a plain file", str(place))
        token: str | None = get_token_to_send(None)
    except (OSError, ValueError) as err:
        raise SettingsError(
            f"The token for {url} cannot be read: {err}. Let this user read that file, or set HF_TOKEN."
        ) from None
    if token and _TOKEN.fullmatch(token) is None:
        raise SettingsError(
            "The token for the hub (HF_TOKEN, or the file of 'hf auth login') holds characters that "
            "no token has: copy it anew."
        )
    return token or None
