"""Torch's full interface, built for releases that are not installed. Budget: 300 s with an empty cache."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.variant import check_variant
from kernel_builder.errors import LockError
from kernel_builder.fetching import fetch_project
from kernel_builder.locking import lock_project
from kernel_builder.pipeline import build_project
from kernel_builder.report import Outcome, VariantReport, format_report
from kernel_builder.settings import Settings
from kernel_builder.toolchain.torch import find_torch
from kernel_spec.version import MajorMinor

DESCRIBED = """
[general]
name = "add-full"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = []

[kernel.add]
backend = "cpu"
depends = ["torch"]
src = ["csrc/add.cpp"]
"""
SOURCE = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "registration.h"

static at::Tensor add_one(const at::Tensor& x) { return x.add(1); }

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("add_one(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("add_one", &add_one); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
USE = """
import sys, torch, kernels
print(kernels.get_local_kernel(sys.argv[1]).add_one(torch.arange(3)).tolist())
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "add-full"
    for name, text in (
        ("build.toml", DESCRIBED),
        ("csrc/add.cpp", SOURCE),
        ("torch-ext/add_full/__init__.py", "from ._ops import ops\n\nadd_one = ops.add_one\n"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def build(project: Path, settings: Settings, **options: bool) -> VariantReport:
    report = build_project(project, settings=settings, jobs=2, **options)
    (variant,) = report.variants
    assert variant.error is None, format_report(report)
    return variant


def test_another_torch_than_is_installed(project: Path, settings: Settings, tmp_path: Path) -> None:
    chosen = replace(settings, torch_versions=(MajorMinor(2, 11),))
    (fetched,) = fetch_project(project, settings=chosen).inputs
    assert fetched.error is None, fetched.error
    lock_project(project, chosen)
    assert "torch-2.11-" in (project / "kernel-builder.lock").read_text()
    made = build(project, chosen, locked=True)
    assert made.variant == f"torch211-cxx11-cpu-{_machine(made)}-linux"
    (warning,) = made.warnings
    assert "neither loaded nor imported" in warning
    assert "what its ops register is not proved" in warning
    assert build(project, chosen).outcome is Outcome.UP_TO_DATE
    with pytest.raises(LockError, match=r"torch: not in the lock"):
        build_project(project, settings=settings)
    assert made.path is not None
    assert check_variant(made.path, settings=settings) == ()
    # The symbols are really looked for in what that release defines.
    (place,) = fetched.places
    lacking = replace(settings, cache=tmp_path / "cache")
    copied = shutil.copytree(place, lacking.toolchains / place.name)
    names = (copied / "exports.txt").read_text().splitlines()
    left = [name for name in names if "at5Tensor" not in name and "_ops3add" not in name]
    left = [name for name in left if "_ZN2at4_ops" not in name]
    (copied / "exports.txt").unlink()
    (copied / "exports.txt").write_text("\n".join(left) + "\n")
    found = check_variant(made.path, settings=lacking)
    assert {each.rule for each in found} == {"undefined-symbol"}


def test_pinned_headers_give_the_bytes_that_the_installed_torch_gives(
    project: Path, settings: Settings
) -> None:
    torch = find_torch()
    assert torch is not None
    pinned = build(project, replace(settings, torch_versions=(torch.build.release,)))
    assert pinned.warnings == ()  # it was loaded and imported, and its ops compared
    assert pinned.path is not None
    command = [sys.executable, "-c", USE, str(project)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.stdout == "[1, 2, 3]\n", finished.stderr
    (library,) = pinned.path.glob("*.so")
    before = library.read_bytes()
    assert build(project, settings).outcome is Outcome.BUILT
    assert library.read_bytes() == before


def _machine(made: VariantReport) -> str:
    return made.variant.split("-")[-2]
