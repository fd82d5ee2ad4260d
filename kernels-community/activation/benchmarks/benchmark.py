"""What ``kernels benchmark`` times: every function against eager torch and torch.compile.

The shapes are those of models: one token's worth up to a long batch. torch allocates its result in
every call, as models do; the kernel writes into one tensor. Where there is a backward, layers are timed, ours
beside those of torch in whose place they are put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import nn

from kernels.bench import Case

Function = Callable[[torch.Tensor], torch.Tensor]

# |found - exact| / (1 + |exact|): half the rounding of the dtype, and 10^-6 for float32.
TOLERANCES = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}
GPU_UNARY = [(16384, 8192), (4096, 4096), (1024, 4096), (256, 4096), (4, 4)]
GPU_TRAINED = [(16384, 8192), (4096, 4096), (256, 4096)]
GPU_GATED = [(16384, 16384), (4096, 22016), (256, 8192), (1, 22016)]
CPU_UNARY = [(1024, 4096), (16, 4096)]
CPU_GATED = [(512, 8192), (8, 8192)]


def halves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.chunk(2, dim=-1)


# What one would write without the kernel.
EAGER: dict[str, Function] = {
    "gelu": F.gelu,
    "gelu_fast": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": F.silu,
    "silu_and_mul": lambda x: F.silu(halves(x)[0]) * halves(x)[1],
    "mul_and_silu": lambda x: halves(x)[0] * F.silu(halves(x)[1]),
    "gelu_and_mul": lambda x: F.gelu(halves(x)[0]) * halves(x)[1],
    "gelu_tanh_and_mul": lambda x: F.gelu(halves(x)[0], approximate="tanh") * halves(x)[1],
    "fatrelu_and_mul": lambda x: F.threshold(halves(x)[0], 0.0, 0.0) * halves(x)[1],
}
LAYERS = {"gelu": "Gelu", "gelu_fast": "FastGELU", "silu": "Silu", "silu_and_mul": "SiluAndMul"}
LAYERS_OF_TORCH = {"gelu": nn.GELU(), "gelu_fast": nn.GELU("tanh"), "silu": nn.SiLU()}


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    on_gpu = device.type != "cpu"
    for op in EAGER:
        gated = "_and_" in op
        shapes = (
            (GPU_GATED if gated else GPU_UNARY) if on_gpu else CPU_GATED if gated else CPU_UNARY
        )
        for shape in shapes:
            for dtype in TOLERANCES:
                # Other dtypes tell nothing new about the small and the middle ones.
                if on_gpu and dtype != torch.float16 and shape != shapes[0]:
                    continue
                yield forward(kernel, op, shape=shape, dtype=dtype, device=device)
    for op in LAYERS:
        for shape in GPU_TRAINED if on_gpu else [(256, 4096)]:
            yield backward(kernel, op, shape=shape, dtype=torch.float16, device=device)


def forward(
    kernel: ModuleType,
    op: str,
    *,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> Case:
    torch.manual_seed(0)
    eager = EAGER[op]
    x = torch.randn(shape, device=device, dtype=torch.float32).to(dtype)
    width = shape[1] // 2 if "_and_" in op else shape[1]
    out = x.new_empty(shape[0], width)
    function, reference = getattr(kernel, op), getattr(kernel.reference, op)
    target = torch.empty_like(out)

    def copy() -> torch.Tensor:
        """As many bytes out as the kernel writes; for the gated ones two thirds of what they move."""
        return target.copy_(out)

    return Case(
        op=op,
        shape=shape,
        dtype=spell(dtype),
        ours=partial(function, out, x),
        expected=lambda: reference(x.double()),
        tolerance=TOLERANCES[dtype],
        peers={"eager": partial(eager, x), **compiled(eager, x)},
        references={"copy": copy} if x.numel() >= 1 << 26 else {},
        moved_bytes=(x.numel() + out.numel()) * x.element_size(),
        out=out,
    )


def backward(
    kernel: ModuleType,
    op: str,
    *,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> Case:
    """Forward and backward together, through the layer, as training does."""
    torch.manual_seed(0)
    eager = LAYERS_OF_TORCH.get(op, EAGER[op])
    x = torch.randn(shape, device=device).to(dtype).requires_grad_()
    layer = getattr(kernel.layers, LAYERS[op])()
    width = shape[1] // 2 if "_and_" in op else shape[1]
    dy = torch.randn(shape[0], width, device=device).to(dtype)
    reference = getattr(kernel.reference, op)

    def train(function: Function, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(function(x), x, dy)[0]

    wide = x.detach().double().requires_grad_()
    compiled_calls = {
        name: partial(train, call.func, x, dy) for name, call in compiled(eager, x).items()
    }
    return Case(
        op=f"{op}+backward",
        shape=shape,
        dtype=spell(dtype),
        ours=partial(train, layer, x, dy),
        expected=lambda: train(reference, wide, dy.double()),
        tolerance=TOLERANCES[dtype],
        peers={"eager": partial(train, eager, x, dy), **compiled_calls},
        moved_bytes=2 * (x.numel() + dy.numel()) * x.element_size() + x.numel() * x.element_size(),
    )


def compiled(eager: Function, x: torch.Tensor) -> dict[str, partial]:
    """torch.compile, where it has a compiler of its own: on a CPU it would compile for minutes."""
    if x.device.type == "cpu":
        return {}
    torch._dynamo.config.recompile_limit = 256
    return {"compile": partial(torch.compile(eager, dynamic=False), x)}


def spell(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
