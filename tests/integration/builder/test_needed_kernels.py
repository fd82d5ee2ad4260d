"""A kernel that needs a kernel and a package: built without them, published, loaded with them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder.pipeline import build_project
from kernel_builder.report import format_report
from kernel_builder.settings import Settings

Kit = Callable[[str], Path]

_USE = """
import torch
from kernels import get_kernel
kernel = get_kernel("acme/needs-kernel", version=1)
print(kernel.scale_twice(torch.ones(2), 3.0).tolist())
"""


def publish(project: Path, repo: str, hub: Path) -> None:
    words = ["upload", project, "--hub", f"file://{hub}", "--repo-id", repo, "--yes"]
    program = Path(sys.executable).with_name("kernel-builder")
    done = subprocess.run(
        [program, *words, "--allow-dirty"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_built_published_and_loaded(kit: Kit, settings: Settings, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    top, base = kit("needs_kernel"), kit("scale_noarch")
    report = build_project(top, settings=settings)
    assert report.exit_code == 0, format_report(report)
    assert "imported with stand-ins for acme/scale-noarch" in format_report(report)
    metadata = json.loads((top / "build/torch-cpu/metadata.json").read_text())
    assert metadata["kernel-depends"] == [{"repo-id": "acme/scale-noarch", "version": 1}]
    # The published client reads these since 0.17, and knows no package but those of its list.
    assert metadata["kernels-minver"] == "0.17.0"
    assert metadata["python-depends"] == []
    assert metadata["kernels-ext"]["python-requires"] == ["packaging>=24"]
    assert json.loads((top / "build/torch-cuda/metadata.json").read_text())["backend"] == {
        "type": "cuda",
        "archs": ["8.0", "9.0"],
    }
    assert build_project(base, settings=settings).exit_code == 0
    publish(top, "acme/needs-kernel", hub)
    publish(base, "acme/scale-noarch", hub)
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KERNELS_HUB": f"file://{hub}",
        "KERNELS_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", _USE], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[9.0, 9.0]"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'kernel-depends = [{ repo-id = "acme/scale-noarch", version = 1 }]',
            'kernel-depends = [{ repo-id = "acme/other", version = 1 }]',
            "Add it to kernel-depends in build.toml",
        ),
        (
            'kernel-depends = [{ repo-id = "acme/scale-noarch", version = 1 }]\n',
            "",
            "get_kernel_dep('acme/scale-noarch')",
        ),
    ],
)
def test_a_kernel_that_is_not_named_fails_the_build(
    kit: Kit, settings: Settings, old: str, new: str, words: str
) -> None:
    project = kit("needs_kernel")
    text = (project / "build.toml").read_text()
    assert old in text
    (project / "build.toml").write_text(text.replace(old, new))
    report = build_project(project, settings=settings)
    assert report.exit_code == 1
    assert words in format_report(report)


def test_a_package_that_is_not_here_is_told_and_fails_nothing(kit: Kit, settings: Settings) -> None:
    project = kit("needs_kernel")
    text = (project / "build.toml").read_text()
    assert '"packaging>=24"' in text
    (project / "build.toml").write_text(text.replace('"packaging>=24"', '"no-such-package>=1"'))
    module = project / "torch-ext/needs_kernel/__init__.py"
    module.write_text(module.read_text() + "\nimport no_such_package  # noqa: E402, F401\n")
    report = build_project(project, settings=settings)
    assert report.exit_code == 0, format_report(report)
    assert "not imported, since no_such_package is not installed here" in format_report(report)
