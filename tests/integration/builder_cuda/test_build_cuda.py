"""A CUDA variant built without a GPU: what it holds, that it loads, and that its bytes repeat."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.variant import check_variant
from kernel_builder.errors import CheckError, ToolchainError
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import Outcome
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cuda import get_cuda
from kernel_spec.backend import BackendKind
from kernel_spec.binary import DeviceCode, read_device_code, read_elf

KIT = Path(__file__).parents[2] / "kits" / "add_device"
CUDA = Selection(backends=frozenset({BackendKind.CUDA}))
NAME = "torch-stable-abi210-cu130-x86_64-linux"

_USE = """
import ctypes, os, sys, torch
from pathlib import Path
sys.setdlopenflags(os.RTLD_LAZY)
ctypes.CDLL(sys.argv[2])
from kernels.importer import load_directory
kernel = load_directory(Path(sys.argv[1]))
print(kernel.add_one(torch.arange(4.0)).tolist())
"""


@pytest.fixture(scope="module")
def built(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = Path(shutil.copytree(KIT, tmp_path_factory.mktemp("a") / "kit"))
    report = build_project(project, settings=settings, selection=CUDA, jobs=1)
    (variant,) = report.variants
    assert variant.error is None
    assert variant.variant == NAME
    assert any("10.3a is not compiled" in note for note in report.notes)
    return project / "build" / NAME


def test_it_holds_what_its_metadata_names(built: Path) -> None:
    metadata = json.loads((built / "metadata.json").read_text())
    assert metadata["backend"] == {"type": "cuda", "archs": ["8.0+PTX", "9.0a"]}
    (library,) = built.glob("*.so")
    assert set(read_device_code(library)) == {
        DeviceCode("cubin", "8.0"),
        DeviceCode("ptx", "8.0"),
        DeviceCode("cubin", "9.0a"),
    }
    facts = read_elf(library)
    assert {"libtorch.so", "libcudart.so.13"} <= set(facts.needed)
    assert not facts.rpath


def test_a_cpu_tensor_goes_through_it(built: Path, settings: Settings) -> None:
    command = [sys.executable, "-c", _USE, str(built), str(get_cuda(settings).cudart)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[1.0, 2.0, 3.0, 4.0]"


def test_another_place_gives_the_same_bytes(
    built: Path, settings: Settings, tmp_path: Path
) -> None:
    project = Path(shutil.copytree(KIT, tmp_path / "another place" / "kit"))
    other = replace(settings, cache=tmp_path / "cache")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "toolchains").symlink_to(settings.cache / "toolchains")
    report = build_project(project, settings=other, selection=CUDA, jobs=1)
    (variant,) = report.variants
    assert variant.outcome is Outcome.BUILT
    assert variant.compiled == 3
    again = project / "build" / NAME
    names = sorted(path.name for path in built.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (again / name).read_bytes() == (built / name).read_bytes(), name


def test_archs_that_are_not_there_are_found(
    built: Path, settings: Settings, tmp_path: Path
) -> None:
    variant = Path(shutil.copytree(built, tmp_path / NAME))
    place = variant / "metadata.json"
    metadata = json.loads(place.read_text())
    metadata["backend"]["archs"] = ["8.0", "12.0"]
    place.write_text(json.dumps(metadata))
    found = {
        (each.rule, each.symbol, "ptx" in each.message)
        for each in check_variant(variant, settings=settings)
    }
    assert found == {
        ("device-code", "12.0", False),
        ("device-code", "9.0a", False),
        ("device-code", "8.0", True),
    }


def test_code_without_a_registered_op_is_found(settings: Settings, tmp_path: Path) -> None:
    project = Path(shutil.copytree(KIT, tmp_path / "kit"))
    binding = project / "torch-ext" / "torch_binding.cpp"
    binding.write_text(binding.read_text().replace("defined(CUDA_KERNEL)", "0"))
    report = build_project(project, settings=settings, selection=CUDA, jobs=1)
    (variant,) = report.variants
    assert isinstance(variant.error, CheckError)
    assert [(each.rule, each.symbol) for each in variant.error.findings] == [
        ("op-without-code", "add_one"),
        ("op-without-code", "CUDA"),
    ]


def test_no_package_index_leaves_the_other_backends(settings: Settings, tmp_path: Path) -> None:
    project = Path(shutil.copytree(KIT, tmp_path / "kit"))
    nothing = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    offline = replace(settings, cache=tmp_path / "cache", pip_variables=nothing)
    report = build_project(project, settings=offline, jobs=1)
    assert [each.variant for each in report.variants] == ["torch-stable-abi210-cpu-x86_64-linux"]
    assert report.exit_code == 0
    (skipped,) = report.skipped
    assert "--cuda-home" in skipped.reason
    assert "\n" not in skipped.reason
    left = [path.name for path in (tmp_path / "cache" / "toolchains").iterdir()]
    assert not [name for name in left if not name.endswith(".lock")]
    report = build_project(project, settings=offline, selection=CUDA, jobs=1)
    assert isinstance(report.variants[0].error, ToolchainError)
    assert report.exit_code == 1


def test_a_toolkit_of_the_users(built: Path, settings: Settings, tmp_path: Path) -> None:
    project = Path(shutil.copytree(KIT, tmp_path / "kit"))
    own = replace(settings, cuda_home=get_cuda(settings).root, pip_variables={"PIP_NO_INDEX": "1"})
    report = build_project(project, settings=own, selection=CUDA, jobs=1)
    assert report.exit_code == 0
    (library,) = (project / "build" / NAME).glob("*.so")
    assert library.read_bytes() == (built / library.name).read_bytes()
