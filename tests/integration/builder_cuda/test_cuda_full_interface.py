"""torch's full C++ interface for CUDA, built and looked at beside a torch for the CPU alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernel_builder.check.variant import check_variant
from kernel_builder.pipeline import build_project
from kernel_builder.report import VariantReport, format_report
from kernel_builder.settings import Settings
from kernel_builder.toolchain.torch import get_torch
from kernel_spec.binary import DeviceCode, read_device_code, read_elf

KIT = Path(__file__).parents[2] / "kits" / "add_cuda_full"


@pytest.fixture(scope="module")
def report(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> VariantReport:
    if (get_torch().root / "lib" / "libc10_cuda.so").is_file():
        pytest.skip("the torch here is one for CUDA")
    project = Path(shutil.copytree(KIT, tmp_path_factory.mktemp("full") / "kit"))
    found = build_project(project, settings=settings, jobs=2)
    assert found.exit_code == 0, format_report(found)
    (variant,) = found.variants
    return variant


def test_it_is_built_for_this_torch_alone(report: VariantReport, settings: Settings) -> None:
    release = get_torch().build.release
    expected = f"torch{release.major}{release.minor}-cxx11-cu130-x86_64-linux"
    assert report.variant == expected
    assert report.path is not None
    assert not check_variant(report.path, settings=settings)


def test_it_asks_for_torchs_libraries_by_name(report: VariantReport) -> None:
    assert report.path is not None
    (library,) = report.path.glob("*.so")
    facts = read_elf(library)
    assert {
        "libc10.so",
        "libc10_cuda.so",
        "libcudart.so.13",
        "libtorch.so",
        "libtorch_cpu.so",
        "libtorch_cuda.so",
    } <= set(facts.needed)
    assert not [symbol for symbol in facts.symbols if symbol.binding == "unique"]
    assert list(read_device_code(library)) == [DeviceCode("cubin", "9.0")]


def test_the_report_says_what_is_not_proved(report: VariantReport) -> None:
    (warning,) = report.warnings
    assert "stand-ins for libc10_cuda.so and libtorch_cuda.so" in warning
    assert "not proved" in warning
    for name in ("c10::cuda::getCurrentCUDAStream", "at::cuda::getCurrentDeviceProperties"):
        assert name in warning
    assert "at::_ops" not in warning
