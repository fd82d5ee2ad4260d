"""Layouts, results and mistakes: what the functions accept, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import pytest
import torch


def dense_the_other_way(tensor: torch.Tensor) -> torch.Tensor:
    """The same matrix, with its first dimension the dense one."""
    return tensor.view(torch.uint8).t().contiguous().view(tensor.dtype).t()


def spread(tensor: torch.Tensor, step: int) -> torch.Tensor:
    """The same matrix, with gaps between the elements of every row, and odd rows."""
    rows, columns = tensor.shape
    room = torch.zeros(rows, columns * step + 1, dtype=tensor.dtype, device=tensor.device)
    view = room[:, 1::step]
    view.copy_(tensor)
    return view


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda tensor: tensor,
    "turned": dense_the_other_way,
    "odd": lambda tensor: spread(tensor, 1),
    "sparse": lambda tensor: spread(tensor, 3),
}


@pytest.mark.parametrize("of_b", LAYOUTS)
@pytest.mark.parametrize("of_a", LAYOUTS)
def test_layouts_do_not_matter(gemm: ModuleType, draw: Callable, of_a: str, of_b: str) -> None:
    operands = draw(70, 136, 384, widest=3.0)
    a, b = LAYOUTS[of_a](operands.a), LAYOUTS[of_b](operands.b)
    assert torch.equal(a.float(), operands.a.float())
    c = gemm.gemm(a.t(), b.t(), operands.a_scale.t(), operands.b_scale.t())
    assert torch.equal(c, gemm.gemm_nt(*operands.native))


def test_scales_of_any_strides(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(70, 264, 384, widest=3.0)
    padded_a = torch.full((4, 72), 7.0, device=operands.a.device)
    padded_b = torch.full((3, 4), 7.0, device=operands.a.device)
    padded_a[:3, :70] = operands.a_scale.t()
    padded_b[:, :3] = operands.b_scale
    expected = gemm.gemm_nt(*operands.native)
    a, b = operands.a, operands.b
    assert torch.equal(gemm.gemm_nt(a, b, padded_a[:3, :70].t(), padded_b[:, :3]), expected)
    assert torch.equal(gemm.gemm_nt(a, b, operands.a_scale.contiguous(), padded_b[:, :3]), expected)


def test_a_result_of_the_callers(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(33, 72, 128)
    c = torch.full((33, 72), 7.0, dtype=torch.bfloat16, device=operands.a.device)
    assert gemm.gemm(*operands.turned, c) is c
    assert torch.equal(c, gemm.gemm(*operands.turned))


@pytest.mark.parametrize("margin", [1, 8])
def test_a_result_inside_a_larger_tensor(gemm: ModuleType, draw: Callable, margin: int) -> None:
    operands = draw(33, 72, 128)
    room = torch.full((35, 72 + 2 * margin), 7.0, dtype=torch.bfloat16, device=operands.a.device)
    c = room[1:34, margin : margin + 72]
    gemm.gemm(*operands.turned, c)
    assert torch.equal(c, gemm.gemm(*operands.turned))
    c.fill_(7.0)
    assert (room == 7).all()


def test_a_result_that_lies_the_other_way(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(33, 72, 128)
    c = torch.zeros(72, 33, dtype=torch.bfloat16, device=operands.a.device).t()
    gemm.gemm(*operands.turned, c)
    assert torch.equal(c, gemm.gemm(*operands.turned))


@pytest.mark.parametrize("shape", [(0, 8, 128), (0, 0, 256), (5, 0, 128)], ids=str)
def test_empty_products(gemm: ModuleType, draw: Callable, shape: tuple[int, int, int]) -> None:
    c = gemm.gemm(*draw(*shape).turned)
    assert c.shape == shape[:2]
    assert c.dtype == torch.bfloat16


def test_nothing_to_sum_gives_zeros(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(9, 16, 0)
    c = torch.full((9, 16), 7.0, dtype=torch.bfloat16, device=operands.a.device)
    assert torch.equal(gemm.gemm(*operands.turned, c), torch.zeros_like(c))


def refused(function: Callable, *arguments: object) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (each caller compares the message)
        function(*arguments)
    return str(caught.value)


def test_an_operand_the_other_way_round_is_named(gemm: ModuleType, draw: Callable) -> None:
    operands = draw(40, 72, 256)
    a, b, a_scale, b_scale = operands.turned
    assert "pass a.t()" in refused(gemm.gemm, operands.a, b, a_scale, b_scale)
    assert "pass b.t()" in refused(gemm.gemm, a, operands.b, a_scale, b_scale)
    assert "Pass a_scale.t()" in refused(gemm.gemm, a, b, operands.a_scale, b_scale)
    assert "Pass b_scale.t()" in refused(gemm.gemm, a, b, a_scale, operands.b_scale)
    message = refused(gemm.gemm_nt, a, operands.b, operands.a_scale, operands.b_scale)
    assert message.startswith("gemm_nt: ")
    assert "pass a.t()" in message


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda a, b, s, t, c: (a[0], b, s, t, c), "a must have two dimensions"),
        (lambda a, b, s, t, c: (a[:, :200], b[:, :200], s, t, c), "K must be a multiple of 128"),
        (lambda a, b, s, t, c: (a, b[:68], s, t, c), "N must be a multiple of 8"),
        (lambda a, b, s, t, c: (a, b, s[:30], t, c), "a_scale must have shape (40, 2)"),
        (lambda a, b, s, t, c: (a, b, s, t[:, :1], c), "b_scale must have shape (1, 2)"),
        (lambda a, b, s, t, c: (a, b, s.double(), t, c), "a_scale must be torch.float32"),
        (lambda a, b, s, t, c: (a, b, s, t, c[:39]), "c must have shape (40, 72)"),
        (lambda a, b, s, t, c: (a, b, s, t, c.float()), "c must be torch.bfloat16"),
        (lambda a, b, s, t, c: (a.float(), b, s, t, c), "a and b must have one dtype"),
        (lambda a, b, s, t, c: (a.float(), b.float(), s, t, c), "float8_e4m3fn"),
        (
            lambda a, b, s, t, c: (a.to(torch.float8_e5m2), b.to(torch.float8_e5m2), s, t, c),
            "found torch.float8_e5m2",
        ),
        (
            lambda a, b, s, t, c: (a, b, s.to("meta"), t, c),
            "a_scale must be on the device of a",
        ),
    ],
)
def test_what_is_refused(gemm: ModuleType, draw: Callable, change: Callable, expected: str) -> None:
    operands = draw(40, 72, 256)
    c = torch.full((40, 72), 7.0, dtype=torch.bfloat16, device=operands.a.device)
    message = refused(gemm.gemm_nt, *change(*operands.native, c))
    assert re.search(re.escape(expected), message), message
    assert (c == 7).all()


def test_amds_fp8_is_refused_on_cuda_by_name(gemm: ModuleType, draw: Callable, device: str) -> None:
    if device == "cpu":
        pytest.skip("the CPU takes both")
    operands = draw(40, 72, 256, dtype=torch.float8_e4m3fnuz)
    message = refused(gemm.gemm, *operands.turned)
    assert "float8_e4m3fnuz, the form of AMD's gfx942" in message


def test_the_op_itself_refuses_what_would_read_elsewhere(gemm: ModuleType, draw: Callable) -> None:
    a, b, a_scale, b_scale = draw(40, 72, 256).native
    c = torch.zeros(40, 72, dtype=torch.bfloat16, device=a.device)
    for arguments in [
        (c[:39], a, b, a_scale, b_scale),
        (c, a, b[:64], a_scale, b_scale),
        (c, a, b, a_scale[:, :1], b_scale),
        (c, a, b, a_scale, b_scale[:, :1]),
        (c, a, b.float(), a_scale, b_scale),
    ]:
        with pytest.raises(RuntimeError):
            gemm.ops.gemm_out(*arguments, True, -1)
