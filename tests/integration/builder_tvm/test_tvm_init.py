"""What init writes builds, and passes its own tests, at once."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from listings import get_listing, parse_session

from kernel_builder.cli.init import init
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import format_report
from kernel_builder.settings import Settings
from kernel_spec.backend import BackendKind

Python = Callable[..., str]


RUN_TESTS = (
    "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]]))"
)


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
    assert "7 passed" in numpy_and_pytest(RUN_TESTS, tmp_path / "new")
    example = (tmp_path / "new/example.py").read_text()
    variables = {"LOCAL_KERNELS": f"me/my-op={tmp_path / 'new'}"}
    assert numpy_and_pytest(example, **variables) == "[1. 1. 1. 1.]"


def test_the_project_of_the_guide(
    settings: Settings,
    numpy_and_pytest: Python,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the page shows of its files is put in the place of what init wrote, and the tests pass."""
    page = get_listing("docs/guide/tvm-ffi.md", "$ kernel-builder init")
    (first, _), *others = parse_session(page)
    assert [command for command, _ in others] == [
        "kernel-builder build any",
        "pip install apache-tvm-ffi numpy",
        "python -m pytest any",
    ]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(init, shlex.split(first)[2:])
    assert done.exit_code == 0, done.output
    files = {
        "build.toml": get_listing("docs/guide/tvm-ffi.md", "[general]"),
        "tvm-ffi-ext/tvm_ffi_binding.cpp": get_listing("docs/guide/tvm-ffi.md", "// tvm-ffi-ext/"),
        "tvm-ffi-ext/any/__init__.py": get_listing("docs/guide/tvm-ffi.md", "# tvm-ffi-ext/any/"),
    }
    for place, text in files.items():
        assert (tmp_path / "any" / place).is_file()
        (tmp_path / "any" / place).write_text(text)
    cpu = Selection(backends=frozenset({BackendKind.CPU}))
    report = build_project(tmp_path / "any", selection=cpu, settings=settings)
    assert report.exit_code == 0, format_report(report)
    used = "import numpy, kernels, sys; k = kernels.get_local_kernel(sys.argv[1]); x = numpy.ones(3, 'float32'); print(k.add_one(x, numpy.empty_like(x)))"
    assert numpy_and_pytest(used, tmp_path / "any") == "[2. 2. 2.]"


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
