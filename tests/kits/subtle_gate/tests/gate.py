"""A case for each function of this kit; what is wrong with it shows there and nowhere else."""

import torch

from kernel_builder.gate import Case


def cases(kernel, device):
    def one(dtype, rows):
        return (torch.randn(rows, 3, device=device).to(dtype),)

    def weighted(dtype, rows):
        return (*one(dtype, rows), torch.randn(3, device=device).to(dtype))

    def scaled(dtype, rows):
        return (*one(dtype, rows), torch.rand(rows, 1, device=device).to(dtype) + 0.1)

    def case(name, inputs, reference, *, differentiable=False, compiles=True):
        return Case(
            name=name,
            function=getattr(kernel, name),
            reference=reference,
            inputs=inputs,
            sizes={"rows": 1},
            tolerance={torch.float32: 1e-6},
            differentiable=differentiable,
            compiles=compiles,
        )

    for name in ("raises", "inference", "stateful", "one_size", "expanded", "changes_strided"):
        yield case(name, one, lambda x: 2 * x)
    for name in ("padded_fake", "refuses_none"):
        yield case(name, one, lambda x: 2 * x)
    yield case("far", one, lambda x: 2 * x, compiles=False)
    yield case("tiny_scale", scaled, lambda x, s: torch.where(s == 0, 0, x / s))
    for name in ("right", "training"):
        yield case(name, one, lambda x: 2 * x, differentiable=True)
    for name in ("backward_of_all", "dense_gradient", "lost_factor", "compiled_backward"):
        yield case(name, weighted, lambda x, w: 2 * x * w, differentiable=True)
