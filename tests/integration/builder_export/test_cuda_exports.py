"""Exports for CUDA, built without a GPU and with a torch for the CPU."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import older_cuda
import peers
import pytest
from lacking import give_up

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.export.write import export_project
from kernel_builder.settings import read_settings
from kernel_builder.toolchain.cuda import CudaToolchain, get_cuda
from kernel_spec.binary import DeviceCode, read_device_code, read_elf

USE = """
import ctypes, os, sys, torch
sys.setdlopenflags(os.RTLD_LAZY)
ctypes.CDLL(sys.argv[1])
import add_device
assert add_device.add_one(torch.arange(4.0)).tolist() == [1, 2, 3, 4]
"""


@pytest.fixture(scope="session")
def cuda() -> CudaToolchain:
    try:
        return get_cuda(read_settings())
    except ToolchainUnavailableError as err:
        give_up(err)


def install(environment, project: Path, cuda: CudaToolchain, **more: str):
    wishes = {"CUDA_HOME": str(cuda.root), "KERNEL_BACKEND": "cuda", **more}
    words = ["-v", "--no-build-isolation", "--no-deps", "-e", project]
    return environment.run("python", "-m", "pip", "install", *words, more=wishes)


def test_the_stable_interface_needs_no_torch_for_cuda(
    environment, cuda: CudaToolchain, copy_kit: Callable[[str], Path]
) -> None:
    project = copy_kit("add_device")
    export_project(project)
    done = install(environment, project, cuda)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cuda.root}/bin/nvcc" in done.stdout + done.stderr
    [library] = project.glob("torch-ext/add_device/*.abi3.so")
    assert library.name.startswith("_add_device_cuda_")
    assert set(read_device_code(library)) == {
        DeviceCode("cubin", "8.0"),
        DeviceCode("ptx", "8.0"),
        DeviceCode("cubin", "9.0a"),
    }
    facts = read_elf(library)
    assert {"libtorch.so", "libcudart.so.13"} <= set(facts.needed)
    assert not facts.rpath
    environment.do("python", "-W", "ignore", "-c", USE, cuda.cudart)
    # For the CPU again: nothing of the other library is left.
    done = install(environment, project, cuda, KERNEL_BACKEND="")
    assert done.returncode == 0, done.stdout + done.stderr
    [library] = project.glob("torch-ext/add_device/*.abi3.so")
    assert library.name.startswith("_add_device_cpu_")
    environment.do("python", "-W", "ignore", "-c", USE, cuda.cudart)
    environment.do("python", "-m", "pip", "uninstall", "-q", "-y", "add-device")


def test_each_component_has_its_own_flags(
    environment, cuda: CudaToolchain, copy_kit: Callable[[str], Path]
) -> None:
    project = copy_kit("two_cuda")
    export_project(project)
    # The project is for CUDA alone, so nothing has to be said.
    done = install(environment, project, cuda, KERNEL_BACKEND="")
    assert done.returncode == 0, done.stdout + done.stderr
    [library] = project.glob("torch-ext/two_cuda/*.abi3.so")
    code = {str(each) for each in read_device_code(library)}
    assert len(code) == 5
    environment.do("python", "-m", "pip", "uninstall", "-q", "-y", "two-cuda")


def test_a_toolkit_of_cuda_12_gets_the_flags_that_it_knows(
    environment, copy_kit: Callable[[str], Path], tmp_path: Path
) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the toolkit is one for x86_64")
    try:
        home = older_cuda.fetch().home
    except peers.PeerUnavailableError as err:
        give_up(err)
    # What CMake links its trial program with, and kernels do without.
    shutil.copytree(home, tmp_path / "cuda", symlinks=True, copy_function=os.link)
    libraries = tmp_path / "cuda" / "lib64"
    (libraries / "libcudart.so").symlink_to("libcudart.so.12")
    subprocess.run(["ar", "rcs", libraries / "libcudadevrt.a"], check=True)
    project = copy_kit("two_cuda")
    table = project / "build.toml"
    flags = '"--compress-mode=size", "-split-compile", "1"'
    text = table.read_text()
    assert "cuda-flags = [" in text
    table.write_text(text.replace("cuda-flags = [", f"cuda-flags = [{flags}, "))
    export_project(project)
    wishes = {"CUDA_HOME": str(tmp_path / "cuda"), "NVCC_APPEND_FLAGS": "--cudart shared"}
    words = ["-v", "--no-build-isolation", "--no-deps", "-e", project]
    environment.do("python", "-m", "pip", "install", *words, more=wishes)
    [library] = project.glob("torch-ext/two_cuda/*.abi3.so")
    assert "libcudart.so.12" in read_elf(library).needed
    assert {each.arch for each in read_device_code(library)} == {"7.5", "8.0", "9.0a"}
    environment.do("python", "-m", "pip", "uninstall", "-q", "-y", "two-cuda")


def test_the_full_interface_asks_for_a_torch_for_cuda(
    environment, cuda: CudaToolchain, copy_kit: Callable[[str], Path]
) -> None:
    project = copy_kit("add_cuda_full")
    export_project(project)
    done = install(environment, project, cuda)
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "only in a torch for CUDA, found torch 2.13.0" in said
    assert not list(project.glob("torch-ext/add_cuda_full/*.so"))


def test_headers_of_a_dependency_are_asked_for(
    environment, cuda: CudaToolchain, copy_kit: Callable[[str], Path]
) -> None:
    project = copy_kit("add_cutlass")
    export_project(project)
    done = install(environment, project, cuda)
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "the headers of cutlass_3_8 are needed" in said
