"""What ``kernel-builder check --gate`` proves of this kernel before it is published."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import torch

from kernel_builder.gate import Case

# |found - exact| / (1 + |exact|): half the rounding of bfloat16, which every result has. Hopper's
# matrix unit sums with 13 bits, so that sums whose terms cancel are further off there: by 2^-12 of
# the sum of their sizes, which is about 0.1 for the inputs below. tests/test_gemm_accuracy.py and
# tests/gpu/test_gemm_gpu.py hold each element to exactly that.
TOLERANCE = {"cpu": 4e-3, "cuda": 4e-2}


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    def native(dtype: torch.dtype, m: int, n: int, k: int) -> tuple[torch.Tensor, ...]:
        a, b = (torch.randn(rows, k, device=device).to(dtype) for rows in (m, n))
        a_scale = torch.rand(m, k // 128, device=device) + 0.5
        b_scale = torch.rand(-(-n // 128), k // 128, device=device) + 0.5
        return a, b, a_scale, b_scale

    def turned(dtype: torch.dtype, m: int, n: int, k: int) -> tuple[torch.Tensor, ...]:
        return tuple(each.t() for each in native(dtype, m, n, k))

    def fresh(a: torch.Tensor, b: torch.Tensor, *, nt: bool) -> torch.Tensor:
        axis = 0 if nt else 1
        return torch.empty(a.shape[axis], b.shape[axis], dtype=torch.bfloat16, device=device)

    dtypes = [torch.float8_e4m3fn]
    if device.type == "cpu":
        # The form of AMD's gfx942.
        dtypes.append(torch.float8_e4m3fnuz)
    for name, inputs in (("gemm", turned), ("gemm_nt", native)):
        function, nt = getattr(kernel, name), name == "gemm_nt"
        shared = {
            "reference": getattr(kernel.reference, name),
            "inputs": inputs,
            "sizes": {"m": 1, "n": 8, "k": 128},
            "tolerance": dict.fromkeys(dtypes, TOLERANCE[device.type]),
            "differentiable": False,
        }
        yield Case(
            name=name,
            function=function,
            # Two minutes of a CPU's time.
            batch="m" if nt and device.type == "cuda" else None,
            **shared,
        )
        yield Case(
            name=f"{name} into c",
            function=lambda c, *operands, function=function: function(*operands, c),
            out=lambda a, b, *_scales, nt=nt: fresh(a, b, nt=nt),
            **shared,
        )
