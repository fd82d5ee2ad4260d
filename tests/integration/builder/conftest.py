"""Kits in a place of their own, built with caches that the tests of this directory share."""

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from lacking import give_up, require_commands

from kernel_builder.settings import Settings, read_settings

KITS = Path(__file__).parents[2] / "kits"


@pytest.fixture(scope="session", autouse=True)
def _needs_compiler_and_torch() -> None:
    require_commands("g++", "strip")
    if find_spec("torch") is None:
        give_up("not installed: torch")


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    cache = tmp_path_factory.mktemp("cache")
    return read_settings({**os.environ, "XDG_CACHE_HOME": str(cache)})


@pytest.fixture
def kit(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(KITS / name, tmp_path / name))

    return copy
