"""What was decided for a layer, kept beside it as plain texts that travel with the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEY = "_kernel_decision"


def read(module: Any) -> Mapping[str, str]:
    """Return what was decided for a layer; nothing where nothing was.

    The keys: ``runs`` (``kernel`` or ``original``), ``mode``, ``device``, ``reason``, and where a
    kernel was in question ``kernel`` and ``commit``.
    """
    kept = module.__dict__.get(_KEY)
    return kept if isinstance(kept, dict) else {}


def write(module: Any, **facts: str | None) -> None:
    """Keep what was decided; a model with it needs nothing of this package to be unpickled."""
    module.__dict__[_KEY] = {name: fact for name, fact in facts.items() if fact is not None}


def forget(module: Any) -> None:
    """Keep nothing."""
    module.__dict__.pop(_KEY, None)
