"""A new project for CUDA builds at once, alone and with the CPU, and its registration is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import format_report
from kernel_builder.scaffold import plan_project, write_project
from kernel_builder.settings import Settings
from kernel_spec.backend import BackendKind
from kernel_spec.binary import DeviceCode, read_device_code


@pytest.mark.parametrize("backends", [("cuda",), ("cpu", "cuda", "rocm")])
def test_a_new_project_builds(tmp_path: Path, settings: Settings, backends) -> None:
    new = plan_project(name="me/fresh", backends=backends, licence="MIT")
    write_project(new, tmp_path)
    selection = Selection(backends=frozenset({BackendKind.CUDA}), archs=("9.0",))
    report = build_project(tmp_path, settings=settings, selection=selection, jobs=2)
    assert report.exit_code == 0, format_report(report)
    (variant,) = report.variants
    assert variant.path is not None
    (library,) = variant.path.glob("*.abi3.so")
    found = read_device_code(library)
    assert list(found) == [DeviceCode("cubin", "9.0")]
