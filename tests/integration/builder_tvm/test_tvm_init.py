"""What init writes builds, and passes its own tests, at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from kernel_builder.cli.init import init
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import format_report
from kernel_builder.settings import Settings

Python = Callable[..., str]


def write(place: Path, *backends: str) -> None:
    line = ["--framework", "tvm-ffi", "--name", "me/my-op", "--backends", *backends]
    done = CliRunner().invoke(init, [*line, "--", str(place)])
    assert done.exit_code == 0, done.output


def test_a_new_project_passes_its_own_tests_and_its_example_runs(
    settings: Settings, numpy_and_pytest: Python, tmp_path: Path
) -> None:
    write(tmp_path / "new", "cpu")
    report = build_project(tmp_path / "new", settings=settings)
    assert report.exit_code == 0, format_report(report)
    code = (
        "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]]))"
    )
    assert "7 passed" in numpy_and_pytest(code, tmp_path / "new")
    example = (tmp_path / "new/example.py").read_text()
    variables = {"LOCAL_KERNELS": f"me/my-op={tmp_path / 'new'}"}
    assert numpy_and_pytest(example, **variables) == "[1. 1. 1. 1.]"


def test_a_new_project_for_cuda_compiles(cuda_settings: Settings, tmp_path: Path) -> None:
    write(tmp_path / "new", "cpu", "cuda")
    report = build_project(
        tmp_path / "new", selection=Selection(archs=("9.0",)), settings=cuda_settings
    )
    assert report.exit_code == 0, format_report(report)
    assert [each.variant for each in report.variants] == [
        "tvm-ffi01-cpu-x86_64-linux",
        "tvm-ffi01-cu130-x86_64-linux",
    ]
