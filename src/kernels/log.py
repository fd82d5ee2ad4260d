"""What the loader tells: the logger called ``kernels``, and lines that are said once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger

_said: set[tuple[str, ...]] = set()


def logger() -> Logger:
    """Return the loader's logger."""
    import logging

    return logging.getLogger("kernels")


def is_new(*key: str) -> bool:
    """Say whether a line with this key was not yet said in this process; it now counts as said."""
    if key in _said:
        return False
    _said.add(key)
    return True


def forget() -> None:
    """Count no line as said."""
    _said.clear()
