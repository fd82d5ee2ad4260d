"""What ``kernel-builder check --gate`` proves of this kernel before it is published."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import ModuleType

import torch

from kernel_builder.gate import Case

# |found - exact| / (1 + |exact|): half the rounding of the dtype, and 10^-6 for float32.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}
# A gradient is a product of two factors, each rounded once.
GRADIENT_TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
LAYERS = {
    "gelu": "Gelu",
    "gelu_fast": "FastGELU",
    "gelu_new": "NewGELU",
    "gelu_quick": "QuickGELU",
    "gelu_tanh": "GeluTanh",
    "silu": "Silu",
    "silu_and_mul": "SiluAndMul",
    "mul_and_silu": "MulAndSilu",
    "gelu_and_mul": "GeluAndMul",
    "gelu_tanh_and_mul": "GeluTanhAndMul",
    "fatrelu_and_mul": "FatreluAndMul",
}
# What a small call records as torch's own op where there is no node in C++, so that the cases above do not reach ours.
RECORDED_BY_TORCH = ("gelu", "silu")
# One of each launch path: element-wise, and two halves.
LARGE = ("silu", "silu_and_mul")


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    def inputs(dtype: torch.dtype, rows: int, width: int) -> tuple[torch.Tensor]:
        return (torch.randn(rows, width, device=device).to(dtype),)

    def half(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(*x.shape[:-1], x.shape[-1] // 2)

    for name, layer in LAYERS.items():
        gated = "_and_" in name
        yield Case(
            name=name,
            function=getattr(kernel, name),
            reference=getattr(kernel.reference, name),
            inputs=inputs,
            out=half if gated else torch.empty_like,
            sizes={"rows": 1, "width": 2 if gated else 1},
            tolerance=TOLERANCE,
            gradient_tolerance=GRADIENT_TOLERANCE,
            batch="rows" if name in LARGE else None,
            layer=layer,
        )

    for name in RECORDED_BY_TORCH:
        yield Case(
            name=f"layers.{LAYERS[name]}",
            function=getattr(kernel.layers, LAYERS[name])().forward,
            reference=getattr(kernel.reference, name),
            inputs=inputs,
            sizes={"rows": 1, "width": 1},
            tolerance=TOLERANCE,
            gradient_tolerance=GRADIENT_TOLERANCE,
        )

    def with_gradient(
        dtype: torch.dtype, rows: int, width: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return (*inputs(dtype, rows, width), *inputs(dtype, rows, width))

    for name in RECORDED_BY_TORCH if device.type == "cuda" else ():
        yield Case(
            name=f"{name}_backward",
            function=getattr(kernel.ops, f"{name}_backward"),
            reference=partial(kernel.gradients.input_gradient, name),
            inputs=with_gradient,
            sizes={"rows": 1, "width": 1},
            tolerance=GRADIENT_TOLERANCE,
            differentiable=False,
        )
