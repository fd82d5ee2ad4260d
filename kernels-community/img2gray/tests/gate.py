"""What ``kernel-builder check --gate`` proves of this kernel before it is published."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import ModuleType

import torch

from kernel_builder.gate import Case

# |found - exact| / (1 + |exact|): half the rounding of the dtype; integers are exact.
TOLERANCE = {
    torch.uint8: 0,
    torch.float32: 1e-6,
    torch.float16: 5e-4,
    torch.bfloat16: 4e-3,
    torch.float64: 1e-14,
}
# Of whole numbers there is none.
GRADIENT_TOLERANCE = {dtype: TOLERANCE[dtype] for dtype in TOLERANCE if dtype.is_floating_point}


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    def picture(dtype: torch.dtype, rows: int, width: int) -> tuple[torch.Tensor]:
        if dtype is torch.uint8:
            return (torch.randint(256, (rows, width, 3), dtype=dtype, device=device),)
        return (torch.rand(rows, width, 3, device=device).to(dtype),)

    for weights in ("default", "bt601", "bt709"):
        yield Case(
            name=weights,
            function=partial(kernel.img2gray, weights=weights),
            reference=partial(kernel.reference.img2gray, weights=weights),
            inputs=picture,
            sizes={"rows": 1, "width": 1},
            tolerance=TOLERANCE,
            gradient_tolerance=GRADIENT_TOLERANCE,
            batch="rows" if weights == "default" else None,
        )

    def planes(dtype: torch.dtype, count: int, rows: int, width: int) -> tuple[torch.Tensor]:
        (interleaved,) = picture(dtype, count * rows, width)
        return (interleaved.view(count, rows, width, 3).movedim(-1, 1).contiguous(),)

    yield Case(
        name="chw",
        function=partial(kernel.img2gray, layout="chw"),
        reference=lambda image: kernel.reference.img2gray(image.movedim(1, -1)),
        inputs=planes,
        sizes={"count": 1, "rows": 1, "width": 1},
        tolerance=TOLERANCE,
        gradient_tolerance=GRADIENT_TOLERANCE,
    )
    into_out = ["img2gray"]
    if hasattr(kernel.ops, "img2gray_by_grid") and device.type == "cuda":
        into_out.append("img2gray_by_grid")
    for name in into_out:
        op = getattr(kernel.ops, name)
        yield Case(
            name=f"{name} into out",
            function=lambda out, image, op=op: op(out, image, 0),
            reference=kernel.reference.img2gray,
            inputs=picture,
            out=lambda image: image.new_empty(image.shape[:-1]),
            sizes={"rows": 1, "width": 1},
            tolerance={torch.uint8: 0},
            differentiable=False,
        )
