"""What ``kernel-builder fetch`` brought here is all that a build without a network needs. Budget: 60 s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.fetching import fetch_project
from kernel_builder.pipeline import build_project
from kernel_builder.report import format_report
from kernel_builder.settings import Settings

Kit = Callable[[str], Path]
NOBODY = "http://127.0.0.1:1/simple/"


@pytest.fixture
def offline(settings: Settings) -> Settings:
    """The same machine when its package index is gone."""
    gone = {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": NOBODY,
        "PIP_RETRIES": "0",
        "PIP_NO_CACHE_DIR": "1",
    }
    return replace(settings, pip_variables=gone)


def bound(project: Path) -> Path:
    """Leave the project the release that is installed."""
    place = project / "build.toml"
    text = 'stable-abi = "2.10"\nminver = "2.13"\nmaxver = "2.13"'
    place.write_text(place.read_text().replace('stable-abi = "2.10"', text))
    return project


def test_what_was_fetched_is_built_with_and_nothing_asked_for(
    kit: Kit, settings: Settings, offline: Settings
) -> None:
    project = bound(kit("scale_node"))
    (headers,) = fetch_project(project, settings=settings).inputs
    assert headers.error is None, headers.error
    assert headers.name == "torch 2.13.0 (headers)"
    assert headers.places[0].parent == settings.toolchains
    assert not (project / "build").exists()
    (again,) = fetch_project(project, settings=offline).inputs
    assert again == headers
    report = build_project(project, settings=offline)
    assert report.exit_code == 0, format_report(report)
    (variant,) = report.variants
    assert variant.path is not None
    assert list(variant.path.glob("*.torch213.so"))


def test_without_it_the_build_says_what_to_do(kit: Kit, offline: Settings, tmp_path: Path) -> None:
    project = bound(kit("scale_node"))
    bare = replace(offline, cache=tmp_path / "cache")
    (fetched,) = fetch_project(project, settings=bare).inputs
    assert fetched.places == ()
    assert isinstance(fetched.error, ToolchainUnavailableError)
    report = build_project(project, settings=bare)
    said = [str(each.error) for each in report.variants] + [each.reason for each in report.skipped]
    (text,) = said
    assert "torch 2.13.0 cannot be fetched with pip" in text
    assert "run kernel-builder fetch once where it can" in text
