"""Kits in a place of their own, built with caches that the tests of this directory share."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder.settings import Settings, read_settings

KITS = Path(__file__).parents[2] / "kits"


@pytest.fixture(scope="session", autouse=True)
def _needs_compiler_and_torch() -> None:
    missing = [name for name in ("g++", "strip") if shutil.which(name) is None]
    try:
        import torch  # noqa: F401
    except ImportError:
        missing.append("torch")
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    cache = tmp_path_factory.mktemp("cache")
    return read_settings({**os.environ, "XDG_CACHE_HOME": str(cache)})


@pytest.fixture
def kit(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(KITS / name, tmp_path / name))

    return copy
