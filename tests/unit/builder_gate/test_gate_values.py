"""What the gate takes for a fault in values, and what it leaves to the limits of a dtype."""

import pytest
import torch

from kernel_builder.gate import Case
from kernel_builder.gate.compiled import check_compiled
from kernel_builder.gate.gradients import check_gradients
from kernel_builder.gate.values import check_values, check_zeros


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


class Doubling(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), factor))

    def forward(self, x):
        return x * self.weight.to(x.dtype)


@pytest.mark.parametrize(("factor", "faults"), [(2.0, 0), (3.0, 1)])
def test_a_layer_is_judged_as_a_function_is(factor: float, faults: int) -> None:
    case = Case(
        name="double",
        function=Doubling(factor),
        reference=lambda x: 2 * x,
        inputs=lambda dtype, rows: (torch.randn(rows, 3).to(dtype),),
        sizes={"rows": 1},
        tolerance={torch.float32: 1e-6},
    )
    assert len(list(check_values(case))) == faults
    assert len(list(check_gradients(case))) == faults
    # What is wrong in both is no difference between them.
    assert list(check_compiled(case)) == []


@pytest.mark.parametrize("what", ["function", "reference", "inputs"])
def test_what_cannot_be_called_is_refused_when_the_case_is_made(what: str) -> None:
    fields = {
        "function": torch.relu,
        "reference": torch.relu,
        "inputs": lambda dtype, rows: (torch.randn(rows).to(dtype),),
        what: torch.ones(1),
    }
    with pytest.raises(TypeError, match=f"case 'f': {what} is Tensor, which cannot be called"):
        Case(name="f", sizes={"rows": 1}, tolerance={torch.float32: 0}, **fields)
