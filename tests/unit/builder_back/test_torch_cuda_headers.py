"""The headers that a torch for the CPU lacks: only those that are nowhere else."""

from pathlib import Path

from kernel_builder.toolchain.cuda import CudaToolchain
from kernel_builder.toolchain.torch import TorchInstall
from kernel_builder.toolchain.torch_cuda import make_cuda_headers
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor


def made(tmp_path: Path) -> set[str]:
    torch = TorchInstall(
        root=tmp_path / "torch", build=TorchBuild(version="2.13.0", release=MajorMinor(2, 13))
    )
    cuda = CudaToolchain(
        root=tmp_path / "cuda",
        version=MajorMinor(13, 0),
        nvcc=Path("/nvcc"),
        include=tmp_path / "cuda" / "include",
        cudart=Path("/cudart"),
        identity="cuda",
    )
    found = make_cuda_headers(torch, cuda, store=tmp_path / "store")
    assert make_cuda_headers(torch, cuda, store=tmp_path / "store") == found
    return {path.relative_to(found).as_posix() for path in found.rglob("*.h")}


def test_a_torch_for_the_cpu_gets_all_of_them(tmp_path: Path) -> None:
    assert made(tmp_path) == {
        "ATen/cuda/CUDAConfig.h",
        "c10/cuda/impl/cuda_cmake_macros.h",
        "cublasLt.h",
        "cublas_v2.h",
        "cusolverDn.h",
        "cusolver_common.h",
        "cusparse.h",
    }


def test_real_headers_are_left_alone(tmp_path: Path) -> None:
    real = ("torch/include/ATen/cuda/CUDAConfig.h", "cuda/include/cusparse.h")
    for name in real:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    assert not made(tmp_path) & {"ATen/cuda/CUDAConfig.h", "cusparse.h"}
