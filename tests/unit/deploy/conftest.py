"""The published toy kernels, hubs and empty environment of the loader's tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).parents[1] / "loader" / "conftest.py"
_spec = importlib.util.spec_from_file_location("loader_fixtures", _PATH)
assert _spec is not None
assert _spec.loader is not None
_loader = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _loader
_spec.loader.exec_module(_loader)

environment, cache, publisher, make_variant, web = (
    _loader.environment,
    _loader.cache,
    _loader.publisher,
    _loader.make_variant,
    _loader.web,
)
