"""Every function against its reference in float64, over the whole range of each dtype.

`test_activation_isa.py` runs this file once more for each instruction set.
"""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

UNARY = ["gelu", "gelu_fast", "gelu_new", "gelu_quick", "gelu_tanh", "silu"]
GATED = ["silu_and_mul", "mul_and_silu", "gelu_and_mul", "gelu_tanh_and_mul", "fatrelu_and_mul"]
NARROW = [torch.bfloat16, torch.float16]

# What the card promises for float32.
RTOL, ATOL = 1e-6, 1e-9
# How many of the 65536 values of a 16-bit dtype may round to the neighbour of the nearest. Only
# those can whose exact value is next to the middle between two; the GPU's relative error is larger.
NEIGHBOURS = {"cpu": 8, "cuda": 64}


def all_values(dtype: torch.dtype) -> torch.Tensor:
    """All 65536 values of a 16-bit dtype, infinities and NaN included."""
    return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)


def sampled_floats() -> torch.Tensor:
    """Two million floats of all signs and exponents; the prime step varies the mantissas."""
    return torch.arange(-(2**31), 2**31, 2039).to(torch.int32).view(torch.float32)


def ulps_apart(found: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """How many representable values lie between two 16-bit tensors, where neither is NaN."""

    def ordinal(x: torch.Tensor) -> torch.Tensor:
        bits = x.view(torch.int16).int()
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)

    return (ordinal(found) - ordinal(expected))[~expected.isnan()].abs()


def call(function, x: torch.Tensor, width: int | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if width is None else x.new_empty((*x.shape[:-1], width))
    assert function(out, x) is None
    return out


@pytest.mark.parametrize("name", UNARY)
def test_float32_keeps_the_promised_accuracy(activation: ModuleType, name: str) -> None:
    x = sampled_floats()
    found = call(getattr(activation, name), x)
    expected = getattr(activation.reference, name)(x.double())
    torch.testing.assert_close(found.double(), expected, rtol=RTOL, atol=ATOL, equal_nan=True)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_every_16_bit_value_rounds_to_the_nearest_or_its_neighbour(
    activation: ModuleType, device: str, name: str, dtype: torch.dtype
) -> None:
    x = all_values(dtype)
    found = call(getattr(activation, name), x)
    expected = getattr(activation.reference, name)(x.double()).to(dtype)
    assert torch.equal(found.isnan(), expected.isnan())
    apart = ulps_apart(found, expected)
    assert apart.max() <= 1
    assert (apart == 1).sum() <= NEIGHBOURS[device]


@pytest.mark.parametrize("name", GATED)
def test_gated_float32_keeps_the_promised_accuracy(activation: ModuleType, name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(257, 2 * 333) * 6
    found = call(getattr(activation, name), x, 333)
    expected = getattr(activation.reference, name)(x.double())
    # Two roundings more: that of the factor's product, and the absolute error times the factor.
    torch.testing.assert_close(found.double(), expected, rtol=1.2e-6, atol=4e-8)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", GATED)
def test_gated_16_bit_results_are_rounded_once(
    activation: ModuleType, name: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    activated = all_values(dtype)
    factor = (torch.randn(activated.shape) * 3).to(dtype)
    halves = [factor, activated] if name == "mul_and_silu" else [activated, factor]
    x = torch.cat(halves).unsqueeze(0)
    found = call(getattr(activation, name), x, activated.numel())
    expected = getattr(activation.reference, name)(x.double()).to(dtype)
    assert torch.equal(found.isnan(), expected.isnan())
    apart = ulps_apart(found, expected)
    assert apart.max() <= 1
    assert (apart == 1).float().mean() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, *NARROW], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_special_values(activation: ModuleType, name: str, dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal
    x = torch.tensor(
        [float("nan"), float("inf"), 0.0, -0.0, tiny / 2, -tiny / 2, 1e4, -1e4], dtype=dtype
    )
    found = call(getattr(activation, name), x)
    assert found[0].isnan()
    assert found[1] == float("inf")
    assert found[2] == 0
    assert not found[2].signbit()
    assert found[3] == 0
    assert found[3].signbit()
    assert (found[4:6] == getattr(activation.reference, name)(x[4:6].double()).to(dtype)).all()
    assert found[6] == x[6]
    assert found[7] == 0
    assert found[7].signbit()


def test_fatrelu_cuts_at_the_threshold_and_keeps_nan(activation: ModuleType) -> None:
    gate = [0.5, 0.25, 0.2, -1.0, float("nan"), float("inf")]
    x = torch.tensor([gate + [2.0] * len(gate)])
    out = torch.empty(1, len(gate))
    activation.fatrelu_and_mul(out, x, threshold=0.25)
    expected = torch.tensor([[1.0, 0.0, 0.0, 0.0, float("nan"), float("inf")]])
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
