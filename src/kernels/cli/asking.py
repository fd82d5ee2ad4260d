"""How the command's options say which version of a kernel is meant."""

from __future__ import annotations


def version_of(text: str | None) -> int | str | None:
    """Read ``--version``: a number is a version, any other text a range of tags."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text
