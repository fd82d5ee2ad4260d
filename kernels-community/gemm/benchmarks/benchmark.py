"""What ``kernels benchmark`` times: products of large models' shapes beside cuBLAS.

`gemm` reads operands whose K is dense, `gemm turned` ones that lie the other way. The peer is torch's
block-scaled product; references are less work (one scale for each operand) and bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType

import torch
import torch.nn.functional as F

from kernels.bench import Case

BLOCK = 128
# Half a unit of bfloat16 is up to 2^-8 of the value; the sums lose less.
TOLERANCE = 4.5e-3
GPU_SHAPES = [
    (1024, 1536, 7168),
    (1024, 4608, 7168),
    (6144, 1536, 7168),
    (6144, 4608, 7168),
    (1024, 7168, 256),
    (6144, 7168, 256),
    (1024, 7168, 2304),
    (6144, 7168, 2304),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 7168, 16384),
    (64, 4608, 7168),
    (16, 4608, 7168),
]
CPU_SHAPES = [(64, 512, 1024)]


def turn(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.view(torch.uint8).t().contiguous().view(matrix.dtype)


def draw_scales(blocks: int, count: int, device: torch.device) -> torch.Tensor:
    """Scales that differ, and that leave a result of about 1."""
    return torch.empty(blocks, count, device=device).uniform_(0.5, 1.5) * (blocks * BLOCK) ** -0.25


def cublas(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor
) -> Callable[[], torch.Tensor]:
    from torch.nn.functional import ScalingType

    blocks = b_scale.shape[0]
    padded = torch.zeros(b_scale.shape[1], -(-blocks // 4) * 4, device=a.device)
    padded[:, :blocks] = b_scale.t()
    b_t, a_scale_t, padded_t = b.t(), a_scale.t(), padded.t()
    rows, columns = ScalingType.BlockWise1x128, ScalingType.BlockWise128x128
    return lambda: F.scaled_mm(
        a, b_t, a_scale_t, rows, padded_t, columns, output_dtype=torch.bfloat16
    )


def one_scale(a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    from torch.nn.functional import ScalingType

    one = torch.ones((), device=a.device)
    b_t, whole = b.t(), ScalingType.TensorWise
    return lambda: F.scaled_mm(a, b_t, one, whole, one, whole, output_dtype=torch.bfloat16)


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    on_gpu = device.type != "cpu"
    for m, n, k in GPU_SHAPES if on_gpu else CPU_SHAPES:
        a = torch.randn(m, k, device=device).to(torch.float8_e4m3fn)
        b = torch.randn(n, k, device=device).to(torch.float8_e4m3fn)
        a_scale = draw_scales(k // BLOCK, m, device)
        b_scale = draw_scales(k // BLOCK, -(-n // BLOCK), device)
        layouts = {"gemm": (a.t(), b.t())}
        if on_gpu and m >= 1024:
            layouts["gemm turned"] = (turn(a), turn(b))
        for op, operands in layouts.items():
            arguments = (*operands, a_scale, b_scale)
            yield Case(
                op=op,
                shape=(m, n, k),
                dtype="float8_e4m3fn",
                ours=lambda arguments=arguments: kernel.gemm(*arguments),
                expected=lambda arguments=arguments: kernel.reference.gemm(*arguments),
                tolerance=TOLERANCE,
                peers={"cuBLAS": cublas(a, b, a_scale, b_scale)} if on_gpu else {},
                references={"cuBLAS, one scale": one_scale(a, b)} if on_gpu else {},
                moved_bytes=m * k + n * k + 2 * m * n,
                flops=2 * m * n * k,
            )
