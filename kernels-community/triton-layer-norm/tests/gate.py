"""What ``kernel-builder check --gate`` proves of this kernel before it is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import product
from types import ModuleType
from typing import Any

import torch

from kernel_builder.gate import Case

EPS = 1e-6
# |found - exact| / (1 + |exact|): half the rounding of the dtype, and 4 * 10^-6 for float32.
TOLERANCE = {torch.float32: 4e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}
# Gradients of a row are differences of its sums, and those of a weight are sums over all rows.
GRADIENT_TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    def draw(dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).to(dtype)

    def row_and_weight(dtype: torch.dtype, rows: int, hidden: int) -> tuple[torch.Tensor, ...]:
        return draw(dtype, rows, hidden), draw(dtype, hidden)

    def with_bias(dtype: torch.dtype, rows: int, hidden: int) -> tuple[torch.Tensor, ...]:
        return *row_and_weight(dtype, rows, hidden), draw(dtype, hidden)

    def with_residual(dtype: torch.dtype, rows: int, hidden: int) -> tuple[torch.Tensor, ...]:
        return *row_and_weight(dtype, rows, hidden), draw(dtype, rows, hidden)

    reference, ops = kernel.reference, kernel.ops
    shared = {
        "sizes": {"rows": 1, "hidden": 1},
        "tolerance": TOLERANCE,
        "gradient_tolerance": GRADIENT_TOLERANCE,
    }
    yield Case(
        name="rms_norm_fn",
        function=kernel.rms_norm_fn,
        reference=lambda x, weight: reference.norm(x, weight, None, EPS, is_rms=True),
        inputs=row_and_weight,
        batch="rows",
        layer="LlamaRMSNorm",
        **shared,
    )
    yield Case(
        name="layer_norm_fn",
        function=kernel.layer_norm_fn,
        reference=lambda x, weight, bias: reference.norm(x, weight, bias, EPS, is_rms=False),
        inputs=with_bias,
        layer="LayerNorm",
        **shared,
    )
    for name in ("rms_norm_fn", "layer_norm_fn"):
        yield Case(
            name=f"{name} with residual",
            function=lambda x, weight, residual, name=name: getattr(kernel, name)(
                x, weight, residual=residual, prenorm=True
            ),
            reference=lambda x, weight, residual, name=name: reference.add_norm(
                *(x, residual, weight, None, EPS),
                is_rms=name == "rms_norm_fn",
                sum_dtype=torch.float64,
            ),
            inputs=with_residual,
            **shared,
        )
    # What torch.compile calls; eager calls come to them by themselves on a GPU alone.
    yield Case(
        name="norm",
        function=lambda x, weight: ops.norm(x, weight, None, EPS, True),
        reference=lambda x, weight: reference.norm(x, weight, None, EPS, is_rms=True),
        inputs=row_and_weight,
        **shared,
    )
    yield Case(
        name="add_norm",
        function=lambda x, weight, residual: ops.add_norm(
            x, residual, weight, None, EPS, True, torch.float32
        ),
        reference=lambda x, weight, residual: reference.add_norm(
            x, residual, weight, None, EPS, is_rms=True, sum_dtype=torch.float64
        ),
        inputs=with_residual,
        **shared,
    )
    if device.type == "cuda" and hasattr(ops, "cuda_norm"):
        yield from _compiled_cases(kernel, row_and_weight, with_residual, shared)


def _compiled_cases(
    kernel: ModuleType,
    row_and_weight: Callable[..., tuple[torch.Tensor, ...]],
    with_residual: Callable[..., tuple[torch.Tensor, ...]],
    shared: dict[str, Any],
) -> Iterator[Case]:
    """The compiled ops themselves: what is above comes to them where they are the faster way.

    Those that are recorded can be differentiated where there is a node in C++ for the torch that runs.
    """
    reference, ops = kernel.reference, kernel.ops
    has_node = import_module(f"{kernel.__name__}._compiled").has_node
    for prefix, is_rms in product(("cuda_", "cuda_recorded_"), (True, False)):
        kind = "rms" if is_rms else "layer"
        differentiable = has_node and prefix == "cuda_recorded_"
        norm, add_norm = getattr(ops, f"{prefix}norm"), getattr(ops, f"{prefix}add_norm")
        yield Case(
            name=f"{prefix}norm ({kind})",
            function=lambda x, weight, norm=norm, is_rms=is_rms: norm(x, weight, None, EPS, is_rms),
            reference=lambda x, weight, is_rms=is_rms: reference.norm(
                x, weight, None, EPS, is_rms=is_rms
            ),
            inputs=row_and_weight,
            differentiable=differentiable,
            **shared,
        )
        yield Case(
            name=f"{prefix}add_norm ({kind})",
            function=lambda x, weight, residual, add_norm=add_norm, is_rms=is_rms: add_norm(
                x, residual, weight, None, EPS, is_rms, True
            ),
            reference=lambda x, weight, residual, is_rms=is_rms: reference.add_norm(
                *(x, residual, weight, None, EPS), is_rms=is_rms, sum_dtype=torch.float64
            ),
            inputs=with_residual,
            differentiable=differentiable,
            **shared,
        )
    for is_rms in (True, False):
        yield Case(
            name=f"cuda_norm_backward ({'rms' if is_rms else 'layer'})",
            function=lambda h, weight, dy, is_rms=is_rms: ops.cuda_norm_backward(
                h, weight, dy, None, EPS, is_rms, True, True
            )[0],
            reference=lambda h, weight, dy, is_rms=is_rms: reference.norm_backward(
                h, weight, dy, None, EPS, is_rms=is_rms
            )[0],
            inputs=with_residual,
            differentiable=False,
            **{**shared, "tolerance": GRADIENT_TOLERANCE},
        )
