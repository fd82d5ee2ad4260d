"""Tensors of more elements than there is memory for, which the gate hands to kernels."""

import pytest
import torch

from kernel_builder.gate import Case
from kernel_builder.gate.layouts import check_far, check_layouts
from kernel_builder.gate.memory import spread_rows, stack
from kernel_builder.gate.outcome import Refused

FAR = 1 << 31


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn, torch.bool])
def test_rows_far_apart_hold_the_same_values(dtype: torch.dtype) -> None:
    tensor = (torch.arange(15.0).view(5, 3) - 7).to(dtype)
    far = spread_rows(tensor, FAR)
    assert far.stride() == (FAR, 1)
    assert far.dtype == dtype
    assert torch.equal(far.float(), tensor.float())


def test_a_block_is_there_again_and_again_and_the_last_one_differs() -> None:
    block = torch.arange(2048.0).view(2, 1024)
    tall = stack(block, -block, 5)
    assert tall.shape == (10, 1024)
    assert tall.is_contiguous()
    for at in range(0, 8, 2):
        assert torch.equal(tall[at : at + 2], block)
    assert torch.equal(tall[8:], -block)
    # One memory: what is written once stands everywhere but in the last block.
    tall[0, 0] = 99
    assert (tall[2, 0].item(), tall[8, 0].item()) == (99, 0)


def make_case(function, *inputs: torch.Tensor) -> Case:
    return Case(
        name="double",
        function=function,
        reference=lambda *tensors: 2 * tensors[0],
        inputs=lambda dtype, rows: inputs,
        sizes={"rows": 1},
        tolerance={torch.float32: 1e-6},
        differentiable=False,
    )


def test_a_kernel_may_refuse_rows_far_apart_by_a_value_error_alone() -> None:
    def refuse(x):
        if not x.is_contiguous():
            raise ValueError("input must be contiguous")
        return 2 * x

    (said,) = check_far(make_case(refuse, torch.ones(4, 2)))
    assert isinstance(said, Refused)
    assert "rows 715827946 elements apart: input must be contiguous" in said.message
    assert list(check_far(make_case(lambda x: 2 * x, torch.ones(4, 2)))) == []


def test_places_of_something_are_not_made_one() -> None:
    seen = []

    def note(x, places):
        seen.append(places.tolist())
        return 2 * x

    places = torch.tensor([0, 2, 5])
    assert list(check_layouts(make_case(note, torch.ones(5, 2), places))) == []
    assert len(seen) == 7
    assert all(each == [0, 2, 5] for each in seen)
