"""Kernels of TVM FFI, built, and Pythons of their own to load them in. The group's budget: six minutes on two cores, of which two make the environments."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import peers
import pytest
from lacking import give_up, require_commands

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import format_report
from kernel_builder.settings import Settings, read_settings
from kernel_builder.toolchain.cuda import get_cuda
from kernel_builder.toolchain.tvm_ffi import get_tvm_ffi
from kernel_spec.backend import BackendKind

KITS = Path(__file__).parents[2] / "kits"
SOURCE = Path(__file__).parents[3] / "src"
LOADER_NEEDS = ("huggingface_hub==2.4.0", "filelock", "packaging", "pyelftools", "click")

Kit = Callable[[str], Path]
# Runs code in an environment where a kernel can be loaded; what it prints comes back.
Python = Callable[..., str]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    require_commands("g++")
    cache = tmp_path_factory.mktemp("cache")
    found = read_settings({**os.environ, "XDG_CACHE_HOME": str(cache)})
    try:
        get_tvm_ffi(found)
    except ToolchainUnavailableError as err:
        give_up(err)
    return found


@pytest.fixture(scope="session")
def cuda_settings(settings: Settings) -> Settings:
    try:
        get_cuda(settings)
    except ToolchainUnavailableError as err:
        give_up(err)
    return settings


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    def copy(name: str) -> Path:
        leave_out = shutil.ignore_patterns("build")
        return Path(shutil.copytree(KITS / name, tmp_path / name, ignore=leave_out))

    return copy


def build_cpu(project: Path, settings: Settings) -> Path:
    report = build_project(
        project, selection=Selection(backends=frozenset({BackendKind.CPU})), settings=settings
    )
    (made,) = report.variants
    assert made.error is None, format_report(report)
    assert made.path is not None
    return made.path


@pytest.fixture(scope="session")
def built(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project ``tvm_add``, built for the CPU; nobody changes it."""
    leave_out = shutil.ignore_patterns("build")
    place = tmp_path_factory.mktemp("built") / "tvm_add"
    project = Path(shutil.copytree(KITS / "tvm_add", place, ignore=leave_out))
    build_cpu(project, settings)
    return project


def python_in(folder: Path) -> Python:
    def run(code: str, *arguments: object, **variables: str) -> str:
        done = subprocess.run(
            [folder / "bin" / "python", "-B", "-c", code, *map(str, arguments)],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(SOURCE), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def environment(make: Callable[..., peers.ClientVenv], *requirements: str) -> peers.ClientVenv:
    try:
        return make(*requirements)
    except peers.PeerUnavailableError as err:
        give_up(err)


@pytest.fixture(scope="session")
def numpy_alone() -> Python:
    """TVM FFI with numpy, and no torch."""
    wanted = ("apache-tvm-ffi==0.1.15.post2", "numpy", *LOADER_NEEDS)
    return python_in(environment(peers.make_venv, *wanted).folder)


@pytest.fixture(scope="session")
def numpy_and_pytest() -> Python:
    """TVM FFI with numpy and pytest, and no torch."""
    wanted = ("apache-tvm-ffi==0.1.15.post2", "numpy", "pytest", *LOADER_NEEDS)
    return python_in(environment(peers.make_venv, *wanted).folder)


@pytest.fixture(scope="session")
def tools() -> Path:
    """TVM FFI with what builds a package: the directory of the environment."""
    wanted = ("apache-tvm-ffi==0.1.15.post2", "numpy", "setuptools>=77", "cmake", "ninja", "wheel")
    return environment(peers.make_venv, *wanted).folder


@pytest.fixture(scope="session")
def first_release() -> Python:
    """The first TVM FFI of the same minor version."""
    wanted = ("apache-tvm-ffi==0.1.0", "numpy", *LOADER_NEEDS)
    return python_in(environment(peers.make_venv, *wanted).folder)


@pytest.fixture(scope="session")
def with_torch() -> Python:
    """TVM FFI with torch."""
    wanted = ("apache-tvm-ffi==0.1.15.post2", *LOADER_NEEDS)
    return python_in(environment(peers.make_torch_venv, *wanted).folder)


@pytest.fixture(scope="session")
def published() -> Path:
    """The published ``kernels`` 0.17.2 with TVM FFI and torch: the directory of its environment."""
    wanted = (*peers.REFERENCE, "apache-tvm-ffi==0.1.15.post2")
    return environment(peers.make_torch_venv, *wanted).folder
