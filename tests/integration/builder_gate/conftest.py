"""Kits of their own, built, with a cache that the tests of this directory share."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel_builder.pipeline import build_project
from kernel_builder.settings import Settings, read_settings

KITS = Path(__file__).parents[2] / "kits"


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    cache = tmp_path_factory.mktemp("cache")
    return read_settings({**os.environ, "XDG_CACHE_HOME": str(cache)})


@pytest.fixture(scope="session")
def build_kit(tmp_path_factory: pytest.TempPathFactory, settings: Settings):
    """``build_kit(name, {old: new})``: a copy of a kit, with texts of its sources replaced, built."""

    def build(name: str, changes: Mapping[str, str] | None = None) -> Path:
        project = Path(shutil.copytree(KITS / name, tmp_path_factory.mktemp("kit") / name))
        for old, new in (changes or {}).items():
            places = [path for path in project.rglob("*.cpp") if old in path.read_text()]
            assert places, old
            for path in places:
                path.write_text(path.read_text().replace(old, new))
        report = build_project(project, settings=settings)
        assert report.exit_code == 0, report
        return project

    return build
