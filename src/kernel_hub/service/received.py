"""JSON as clients send it: UTF-8, not too deep, and of texts that can be written down again."""

from __future__ import annotations

import json
import re
from typing import Any

# Half of a character, which JSON can spell and no encoding writes.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def load_received(data: bytes | bytearray) -> Any:
    """Read JSON that somebody sent.

    Raises:
        ValueError: it is not such JSON.
    """
    try:
        document = json.loads(data.decode())
    except RecursionError as err:
        raise ValueError("it is nested too deeply") from err
    if _SURROGATE.search(data) is not None:
        json.dumps(document, ensure_ascii=False).encode()
    return document
