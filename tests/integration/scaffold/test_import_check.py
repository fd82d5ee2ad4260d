"""What a build says of a package that is missing when it imports a variant, and how that is skipped."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kernel_builder.pipeline import build_project
from kernel_builder.report import Report, format_report
from kernel_builder.settings import read_settings

KIT = Path(__file__).parents[2] / "kits" / "scale_noarch"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = Path(shutil.copytree(KIT, tmp_path / "kit"))
    module = place / "torch-ext/scale_noarch/__init__.py"
    module.write_text(module.read_text() + "\nimport no_such_package.part\n")
    return place


def build(project: Path, *, more: str = "", depends: str = "") -> Report:
    file = project / "build.toml"
    text = file.read_text().replace("\n[torch-noarch]", f"{depends}\n[torch-noarch]")
    file.write_text(text + more)
    cache = str(project.parent / "cache")
    return build_project(project, settings=read_settings({**os.environ, "XDG_CACHE_HOME": cache}))


def test_a_package_that_is_not_declared_is_one_clear_message(project: Path) -> None:
    report = build(project)
    shown = format_report(report)
    assert report.exit_code == 1
    assert shown.count("no_such_package") == 1, shown
    assert "__init__.py:" in shown
    assert "list it under python-depends; list it, or import it where it is used" in shown
    assert "Traceback" not in shown


def test_a_declared_package_that_is_not_here_is_a_warning(project: Path) -> None:
    report = build(project, depends='python-depends = ["no-such-package>=1.0"]\n')
    assert report.exit_code == 0, format_report(report)
    shown = format_report(report)
    assert "warning: not imported, since no_such_package is not installed here" in shown
    (only,) = report.variants
    assert only.path is not None
    document = json.loads((only.path / "metadata.json").read_text())
    assert document["python-depends"] == []
    assert '"no-such-package>=1.0"' in json.dumps(document)


def test_the_import_is_skipped_for_a_reason_that_everyone_sees(project: Path) -> None:
    report = build(project, more='\n[test]\nskip-import-check = "it wants a GPU"\n')
    assert report.exit_code == 0, format_report(report)
    assert "not imported, since build.toml says so: it wants a GPU" in format_report(report)
    (only,) = report.variants
    assert only.path is not None
    assert "skipped: it wants a GPU" in (only.path / "metadata.json").read_text()
