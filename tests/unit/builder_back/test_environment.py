import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder import environment
from kernel_builder.environment import detect_host
from kernel_builder.errors import SelectionError, ToolchainError
from kernel_builder.settings import Settings, read_settings
from kernel_builder.toolchain import torch as torch_module
from kernel_builder.toolchain.cpu import get_compiler, read_toolchain
from kernel_builder.toolchain.driver import read_device_archs
from kernel_builder.toolchain.torch import TorchInstall, get_torch
from kernel_builder.toolchain.wheels import read_cuda_wheels
from kernel_spec.backend import Backend, BackendKind
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
    host = detect_host(settings)
    assert host.targets(BackendKind.CUDA) == (Backend(BackendKind.CUDA, MajorMinor(13, 0)),)
    assert host.targets(BackendKind.CPU) == (Backend(BackendKind.CPU),)
    assert not host.targets(BackendKind.ROCM)
    assert not settings.cache.exists()
    monkeypatch.setattr(environment.platform, "machine", lambda: "riscv64")
    host = detect_host(settings)
    assert not host.toolkits
    assert "--cuda-home" in host.missing[BackendKind.CUDA]


def test_other_pinned_toolkits_are_named_by_their_version(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    two = replace(settings, cuda_versions=(MajorMinor(13, 2), MajorMinor(13, 0)))
    names = [str(each.version) for each in detect_host(two).targets(BackendKind.CUDA)]
    assert names == ["13.2", "13.0"]
    with pytest.raises(SelectionError, match=r"no pinned toolkit 12\.6; pinned: 13\.0, 13\.2"):
        detect_host(replace(settings, cuda_versions=(MajorMinor(12, 6),)))


def test_a_missing_driver_is_said_plainly() -> None:
    with pytest.raises(ToolchainError, match=r"no NVIDIA driver here .* --arch 9\.0"):
        read_device_archs("libno-such-driver.so.1")


def test_every_pinned_toolkit_has_its_compiler_runtime_and_headers() -> None:
    wheels = read_cuda_wheels()
    assert {each.machine for each in wheels} == {"x86_64", "aarch64"}
    assert len({each.key for each in wheels}) == len(wheels)
    for each in wheels:
        assert {wheel.name for wheel in each.wheels} == {
            "nvidia-cuda-cccl",
            "nvidia-cuda-crt",
            "nvidia-cuda-nvcc",
            "nvidia-cuda-runtime",
            "nvidia-nvvm",
        }
        nvcc = next(wheel for wheel in each.wheels if wheel.name == "nvidia-cuda-nvcc")
        assert nvcc.version.startswith(f"{each.version}.")
        assert all(len(wheel.sha256) == 64 for wheel in each.wheels)


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


def test_another_processor_has_a_compiler_of_its_own(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    other = replace(settings, cpu="aarch64")
    host = detect_host(other)
    assert host.cpu == "aarch64"
    missing = host.missing[BackendKind.CPU]
    assert missing.startswith("aarch64-linux-gnu-g++ not found")
    assert "apt-get install g++-aarch64-linux-gnu" in missing
    # What Fedora calls g++ is for its own processor alone.
    assert "Fedora's gcc-c++-aarch64-linux-gnu has no C++ library" in missing
    assert "dnf install" not in missing
    compiler = tmp_path / "aarch64-linux-gnu-g++"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    host = detect_host(other)
    assert BackendKind.CPU not in host.missing
    # Of the pinned toolkits, the compiler is this machine's and the runtime the other one's.
    assert [str(each) for each in host.targets(BackendKind.CUDA)] == ["cuda 13.0"]
    host = detect_host(replace(other, cuda_home=tmp_path))
    assert "leave out --cuda-home" in host.missing[BackendKind.CUDA]


def test_a_compiler_for_another_processor_is_refused(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    compiler = tmp_path / "g++"
    compiler.write_text(
        "#!/bin/sh\ncase $1 in -dumpmachine) echo aarch64-linux-gnu;; *) echo 12;; esac\n"
    )
    with pytest.raises(ToolchainError, match="compiles for aarch64, and the variant is for x86_64"):
        read_toolchain(get_compiler(settings), settings)


@pytest.mark.parametrize(
    ("version", "path", "said"),
    [
        ("g++ 12.2.0", "", r"needs as and ld, .* nor in PATH, which is empty; "),
        ("g++ 12.2.0", "/no/bin", r"needs as and ld, .* nor in PATH=/no/bin; "),
        ("clang version 16.0", "/no/bin", r"needs ld, .* nor in PATH=/no/bin; "),
    ],
)
def test_the_programs_that_a_compiler_starts_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, path: str, said: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    compiler = tmp_path / "g++"
    compiler.write_text(
        f"#!/bin/sh\ncase $1 in --version) echo {version};; -dumpversion) echo 12;;\n"
        "-dumpmachine) echo x86_64-linux-gnu;; -print-prog-name=*) echo ${1#*=};; esac\n"
    )
    compiler.chmod(0o755)
    environ = {"PATH": path, "CXX": str(compiler), "HOME": str(tmp_path)}
    settings = read_settings(environ)
    with pytest.raises(ToolchainError, match=said) as caught:
        read_toolchain(get_compiler(settings), settings)
    assert str(compiler) in str(caught.value)
    # With both on the path, it goes on to the next thing that is lacking.
    for name in ("as", "ld"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    settings = read_settings({**environ, "PATH": str(tmp_path)})
    with pytest.raises(ToolchainError, match=r"has no crti\.o"):
        read_toolchain(get_compiler(settings), settings)


def test_an_nvcc_on_the_search_path_is_not_taken(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytorch 73047, mamba 18: the nvcc that happens to be there is not that of torch, or CUDA_HOME is not set."""
    monkeypatch.setattr(environment.platform, "machine", lambda: "x86_64")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\ntouch ran\necho 'Cuda compilation tools, release 11.4, V11.4.48'\n")
    nvcc.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for home in ({}, {"CUDA_HOME": str(tmp_path / "gone")}):
        own = read_settings({"PATH": str(tmp_path), "HOME": str(tmp_path), **home})
        assert detect_host(own).targets(BackendKind.CUDA) == (
            Backend(BackendKind.CUDA, MajorMinor(13, 0)),
        )
    assert not (tmp_path / "ran").exists()
