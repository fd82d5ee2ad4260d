"""What the gate takes for a fault in values, and what it leaves to the limits of a dtype."""

import torch

from kernel_builder.gate import Case
from kernel_builder.gate.values import check_zeros


def divide(x, scale):
    scale = torch.where(scale == 0, 1, scale)
    return x / scale - 2 * x / scale


def make_case(function) -> Case:
    return Case(
        name="divide",
        function=function,
        reference=divide,
        inputs=lambda dtype, rows: (torch.randn(rows, 3).to(dtype), torch.ones(rows, 1).to(dtype)),
        sizes={"rows": 1},
        tolerance={torch.float16: 1e-2},
        differentiable=False,
    )


def test_a_result_beyond_the_dtype_is_no_fault_whatever_stands_there() -> None:
    # Divided by the smallest numbers, both terms are infinite in float16.
    assert list(check_zeros(make_case(divide))) == []


def test_nan_for_a_number_that_the_dtype_can_hold_is_one() -> None:
    def by_inverse(x, scale):
        return -x * torch.where(scale == 0, 1, 1 / scale)

    (found,) = check_zeros(make_case(by_inverse))
    assert "denormal numbers for input 1: NaN at 1 places" in found.message
