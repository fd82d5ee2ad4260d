"""A case for each function of this kit; what is wrong with it shows there and nowhere else."""

import torch

from kernel_builder.gate import Case

WITH_BACKWARD = ("right", "wrong_backward", "no_backward")
FILLS = ("unwritten_end", "overflow")


def cases(kernel, device):
    def inputs(dtype, rows, width):
        return (torch.randn(rows, width, device=device).to(dtype),)

    for name in (
        *("right", "lying_schema", "no_fake", "fake_shape", "fake_dtype", "fake_strides"),
        *("no_backward", "wrong_backward", "other_compiled", "zero_scale", "unwritten_end"),
        *("unwritten_own", "overflow", "strided", "killed", "lying_schema_of_8_bits"),
    ):
        yield Case(
            name=name,
            function=getattr(kernel, name),
            reference=lambda x: 2 * x,
            inputs=inputs,
            out=torch.empty_like if name in FILLS else None,
            sizes={"rows": 1, "width": 1},
            tolerance={torch.float8_e5m2 if name.endswith("8_bits") else torch.float32: 1e-6},
            differentiable=name in WITH_BACKWARD,
            batch="rows" if name == "overflow" else None,
        )
