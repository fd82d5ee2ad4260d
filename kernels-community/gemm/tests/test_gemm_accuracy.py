"""How near the products are to float64, for blocks of very different sizes and for every shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest
import torch

FP8 = torch.float8_e4m3fn

# Around the sizes in which either backend cuts: rows of 32 and 64, columns of 32 and 128.
SHAPES = [
    (1, 8, 128),
    (2, 16, 256),
    (31, 40, 128),
    (33, 128, 384),
    (64, 136, 256),
    (65, 264, 128),
    (128, 120, 640),
    (130, 256, 1024),
]


@pytest.mark.parametrize("widest", [0.0, 6.0], ids=["even", "wild"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_any_shape(
    gemm: ModuleType,
    draw: Callable,
    assert_close: Callable,
    shape: tuple[int, int, int],
    widest: float,
) -> None:
    operands = draw(*shape, widest=widest)
    assert_close(gemm.gemm(*operands.turned), operands)


def test_both_fp8_types_on_the_cpu(
    gemm: ModuleType, draw: Callable, assert_close: Callable, device: str
) -> None:
    if device != "cpu":
        pytest.skip("float8_e4m3fnuz is AMD's")
    operands = draw(33, 72, 256, dtype=torch.float8_e4m3fnuz, widest=6.0)
    assert_close(gemm.gemm(*operands.turned), operands)


@pytest.mark.parametrize("dtype", [FP8, torch.float8_e4m3fnuz], ids=str)
def test_every_fp8_value_on_the_cpu(gemm: ModuleType, dtype: torch.dtype) -> None:
    """Rows that are zero but for one value, against a one: each product is the value itself."""
    values = torch.arange(256, dtype=torch.uint8).view(dtype)
    a = torch.zeros(256, 128, dtype=torch.uint8).view(dtype)
    a[:, 5] = values
    b = torch.zeros(8, 128).to(dtype)
    b[:, 5] = 1.0
    ones = torch.ones(256, 1)
    c = gemm.gemm_nt(a, b, ones, ones[:1])
    # Their four bits of mantissa fit into bfloat16.
    assert torch.equal(c[:, 0].isnan(), values.float().isnan())
    assert torch.equal(c[:, 0].float().nan_to_num(), values.float().nan_to_num())


def test_a_scale_reaches_only_its_block(
    gemm: ModuleType, draw: Callable, assert_close: Callable
) -> None:
    """One scale at a time is doubled: only its row or its columns change."""
    operands = draw(130, 264, 384, widest=0.0)
    before = gemm.gemm_nt(*operands.native)
    for name, row, block in [("a_scale", 129, 2), ("a_scale", 0, 0), ("b_scale", 2, 1)]:
        scale = getattr(operands, name).clone()
        scale[row, block] *= 2.0
        changed = replace(operands, **{name: scale})
        after = gemm.gemm_nt(*changed.native)
        assert_close(after, changed)
        own = after[row] if name == "a_scale" else after[:, row * 128 :]
        assert (own != (before[row] if name == "a_scale" else before[:, row * 128 :])).any()
        own.copy_(before[row] if name == "a_scale" else before[:, row * 128 :])
        assert torch.equal(after, before)


def test_zero_scales_give_zeros(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(70, 136, 256)
    c = gemm.gemm_nt(operands.a, operands.b, operands.a_scale * 0, operands.b_scale)
    assert torch.equal(c, torch.zeros_like(c))


def test_the_largest_values_stay_finite(
    gemm: ModuleType, draw: Callable, assert_close: Callable
) -> None:
    operands = draw(64, 64, 512, widest=0.0)
    operands.a.copy_(torch.full((64, 512), 448.0))
    operands.b.copy_(torch.full((64, 512), -448.0))
    assert_close(gemm.gemm_nt(*operands.native), operands)


def test_cancelling_blocks(gemm: ModuleType, draw: Callable, assert_close: Callable) -> None:
    """Two blocks of K of opposite sign and huge scales, and a third that is what remains."""
    operands = draw(40, 136, 384, widest=0.0)
    operands.a[:, 128:256] = operands.a[:, :128]
    operands.b[:, 128:256] = operands.b[:, :128]
    operands.a_scale[:, 0] = 2.0**15
    operands.a_scale[:, 1] = -(2.0**15)
    assert_close(gemm.gemm_nt(*operands.native), operands)


def test_nan_spreads_to_its_row_and_column_only(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(70, 136, 256)
    operands.a[3, 200] = float("nan")
    operands.b[135, 7] = float("nan")
    c = gemm.gemm_nt(*operands.native)
    expected = torch.zeros(70, 136, dtype=torch.bool, device=c.device)
    expected[3], expected[:, 135] = True, True
    assert torch.equal(c.isnan(), expected)
