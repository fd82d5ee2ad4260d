"""Toolkits, capabilities and components of a CUDA build, and the CPU code that comes along."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import format_report
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cuda import get_cuda
from kernel_spec.backend import BackendKind
from kernel_spec.binary import DeviceCode, read_device_code
from kernel_spec.version import MajorMinor

ROOT = Path(__file__).parents[3]
KITS = ROOT / "tests" / "kits"
CUDA = Selection(backends=frozenset({BackendKind.CUDA}))

_CALL = """
import ctypes, os, sys, torch
from pathlib import Path
sys.setdlopenflags(os.RTLD_LAZY)
ctypes.CDLL(sys.argv[2])
from kernels.importer import load_directory
kernel = load_directory(Path(sys.argv[1]))
torch.manual_seed(0)
print(CALL)
"""
_ACTIVATION = (
    "[(out := torch.empty(3, 65), getattr(kernel, name)(out, torch.randn(3, 130)))[0].tolist()"
    " for name in ('silu_and_mul', 'gelu_tanh_and_mul')]"
)
_IMAGE = "kernel.img2gray(torch.randint(0, 256, (33, 17, 3), dtype=torch.uint8)).tolist()"


def build(project: Path, settings: Settings, selection: Selection) -> Path:
    report = build_project(project, settings=settings, selection=selection, jobs=2)
    assert report.exit_code == 0, format_report(report)
    (variant,) = report.variants
    assert variant.path is not None
    return variant.path


def call(variant: Path, text: str, settings: Settings) -> str:
    program = _CALL.replace("CALL", text)
    command = [sys.executable, "-c", program, str(variant), str(get_cuda(settings).cudart)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "text"), [("activation", _ACTIVATION), ("img2gray", _IMAGE)])
def test_a_cpu_tensor_through_a_cuda_variant_gives_the_cpu_result(
    name: str, text: str, settings: Settings, tmp_path: Path
) -> None:
    project = tmp_path / name
    shutil.copytree(ROOT / "kernels-community" / name, project, ignore=lambda *_: {"build"})
    cpu = Selection(backends=frozenset({BackendKind.CPU}))
    expected = call(build(project, settings, cpu), text, settings)
    variant = build(project, settings, replace(CUDA, archs=("9.0",)))
    assert json.loads((variant / "metadata.json").read_text())["backend"]["archs"] == ["9.0"]
    assert call(variant, text, settings) == expected


def test_components_have_their_own_flags_headers_and_capabilities(
    settings: Settings, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(KITS / "two_cuda", tmp_path / "kit"))
    variant = build(project, settings, CUDA)
    (library,) = variant.glob("*.so")
    assert set(read_device_code(library)) == {
        DeviceCode("cubin", "7.5"),
        DeviceCode("cubin", "8.0"),
        DeviceCode("cubin", "9.0a"),
        DeviceCode("cubin", "10.0"),
        DeviceCode("ptx", "10.0"),
    }
    assert call(variant, "(kernel.old_step(), kernel.new_step())", settings) == "(11, 22)\n"


def test_another_pinned_toolkit_compiles_what_needs_it(settings: Settings, tmp_path: Path) -> None:
    project = Path(shutil.copytree(KITS / "two_cuda", tmp_path / "kit"))
    newer = replace(settings, cuda_versions=(MajorMinor(13, 2),))
    variant = build(project, newer, replace(CUDA, archs=("12.0",)))
    assert variant.name == "torch-stable-abi210-cu132-x86_64-linux"
    (library,) = variant.glob("*.so")
    assert DeviceCode("cubin", "12.0") in set(read_device_code(library))


def test_a_toolkit_of_the_users_is_named_by_its_compiler(
    settings: Settings, tmp_path: Path
) -> None:
    """A copy of the pinned tree with the layout of an installer: lib64, and a dev symlink."""
    own = tmp_path / "cuda"
    shutil.copytree(get_cuda(settings).root, own)
    (own / "lib").rename(own / "lib64")
    (own / "lib").symlink_to("lib64")
    project = Path(shutil.copytree(KITS / "add_device", tmp_path / "kit"))
    ours = replace(settings, cuda_home=own, pip_variables={"PIP_NO_INDEX": "1"})
    variant = build(project, ours, replace(CUDA, archs=("8.0",)))
    assert variant.name == "torch-stable-abi210-cu130-x86_64-linux"
    blank = tmp_path / "cuda home"
    blank.symlink_to(own)
    report = build_project(project, settings=replace(ours, cuda_home=blank), selection=CUDA, jobs=2)
    assert "a blank; link to it" in format_report(report)
    header = own / "include" / "cuda_runtime_api.h"
    header.write_text(header.read_text().replace("CUDART_VERSION  13000", "CUDART_VERSION  13010"))
    report = build_project(project, settings=ours, selection=CUDA, jobs=2)
    assert report.exit_code == 1
    assert "the headers beside it are of CUDA 13.1" in format_report(report)
