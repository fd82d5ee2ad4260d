import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder import environment
from kernel_builder.environment import detect_host
from kernel_builder.errors import ToolchainError
from kernel_builder.settings import Settings, read_settings
from kernel_builder.toolchain import torch as torch_module
from kernel_builder.toolchain.cuda import read_cuda
from kernel_builder.toolchain.torch import TorchInstall, get_torch
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

INSTALL = TorchInstall(
    root=Path("/site/torch"), build=TorchBuild(version="2.13.0", release=MajorMinor(2, 13))
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    return read_settings({"PATH": str(tmp_path), "HOME": str(tmp_path)})


def test_a_host_with_everything(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_torch", lambda: INSTALL)
    host = detect_host(settings)
    assert host.torch == INSTALL.build
    assert host.os == sys.platform
    assert BackendKind.CPU not in host.missing
    assert "hipcc" in host.missing[BackendKind.ROCM]


def test_the_pinned_toolkit_is_planned_with_and_not_fetched(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    assert detect_host(settings).toolkits == {BackendKind.CUDA: MajorMinor(13, 0)}
    assert not settings.cache.exists()
    monkeypatch.setattr(environment.platform, "machine", lambda: "aarch64")
    host = detect_host(settings)
    assert not host.toolkits
    assert "--cuda-home" in host.missing[BackendKind.CUDA]


def test_a_toolkit_of_the_users_says_its_version(settings: Settings, tmp_path: Path) -> None:
    own = replace(settings, cuda_home=tmp_path / "cuda")
    assert "cuda_runtime_api.h" in detect_host(own).missing[BackendKind.CUDA]
    (tmp_path / "cuda" / "include").mkdir(parents=True)
    header = tmp_path / "cuda" / "include" / "cuda_runtime_api.h"
    header.write_text("#define CUDART_VERSION  12080\n")
    assert detect_host(own).toolkits == {BackendKind.CUDA: MajorMinor(12, 8)}
    with pytest.raises(ToolchainError, match=r"no bin/nvcc"):
        read_cuda(tmp_path / "cuda")


def test_a_host_without_compiler_and_torch(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "find_torch", lambda: None)
    host = detect_host(replace(settings, cxx="no-such-compiler"))
    assert host.torch is None
    assert "no-such-compiler not found (from CXX)" in host.missing[BackendKind.CPU]


def test_torch_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "find_torch", lambda: None)
    with pytest.raises(ToolchainError, match="pip install torch"):
        get_torch()


def test_a_torch_without_headers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "find_torch", lambda: INSTALL)
    with pytest.raises(ToolchainError, match=r"torch 2\.13\.0 in /site/torch has no include"):
        get_torch()


def test_torch_is_found_without_being_imported() -> None:
    code = (
        "import sys; from kernel_builder.toolchain.torch import find_torch; find_torch();"
        "sys.exit('torch' in sys.modules)"
    )
    path = str(Path(environment.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=False)
    assert done.returncode == 0
