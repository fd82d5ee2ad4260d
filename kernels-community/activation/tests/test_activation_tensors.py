"""Shapes, strides, threads and mistakes: what the functions accept, and what they refuse."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def filled(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 1000])
def test_lengths_around_the_vector_width(
    activation: ModuleType, count: int, dtype: torch.dtype
) -> None:
    guard = 64
    x = filled((count,), dtype)
    room = torch.full((count + 2 * guard,), 7.0, dtype=dtype)
    out = room[guard : guard + count]
    activation.silu(out, x)
    expected = activation.reference.silu(x.double()).to(dtype)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-6)
    assert (room[:guard] == 7).all()
    assert (room[guard + count :] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("out_offset", "in_offset"), [(0, 1), (1, 0), (1, 1), (4, 2)])
def test_tensors_that_begin_between_vectors(
    activation: ModuleType, out_offset: int, in_offset: int, dtype: torch.dtype
) -> None:
    x = filled((4000,), dtype)[in_offset:][:3001]
    room = torch.full((3100,), 7.0, dtype=dtype)
    out = room[out_offset:][:3001]
    activation.gelu(out, x)
    expected = activation.reference.gelu(x.double()).to(dtype)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-6)
    assert (room[out_offset + 3001 :] == 7).all()


# A thread an element, a pack in small blocks, in large ones, two packs, a pack again.
@pytest.mark.parametrize("rows", [20, 100, 2000, 7000, 20000])
def test_sizes_on_both_sides_of_each_way_to_launch(activation: ModuleType, rows: int) -> None:
    x = filled((rows, 2 * 520), torch.float16)
    out = x.new_full((rows, 520), 7.0)
    activation.silu_and_mul(out, x)
    expected = activation.reference.silu_and_mul(x.float())
    torch.testing.assert_close(out.float(), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2,), (3, 2), (5, 14), (2, 3, 66), (0, 8), (4, 0), (1, 1, 2)])
def test_gated_shapes(activation: ModuleType, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = filled(shape, dtype)
    out = x.new_empty((*shape[:-1], shape[-1] // 2))
    activation.mul_and_silu(out, x)
    expected = activation.reference.mul_and_silu(x.double()).to(dtype)
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-6)


def test_a_tensor_without_dimensions(activation: ModuleType) -> None:
    out = torch.empty(())
    activation.gelu(out, torch.tensor(1.0))
    torch.testing.assert_close(out, torch.nn.functional.gelu(torch.tensor(1.0)))


def layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Tensors equal to `x` (4-d), each with other strides."""
    wide = x.new_zeros((*x.shape[:-1], x.shape[-1] + 5))
    wide[..., 2:-3] = x
    sparse = x.new_zeros((*x.shape[:-1], x.shape[-1] * 2))
    sparse[..., ::2] = x
    return {
        "contiguous": x.contiguous(),
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "transposed": x.transpose(1, 3).contiguous().transpose(1, 3),
        "rows of a wider tensor": wide[..., 2:-3],
        "every other element": sparse[..., ::2],
    }


LAYOUTS = list(layouts(torch.zeros(2, 2, 2, 2)))


@pytest.mark.parametrize("out_layout", LAYOUTS)
@pytest.mark.parametrize("in_layout", LAYOUTS)
def test_any_strides_on_either_side(
    activation: ModuleType, in_layout: str, out_layout: str
) -> None:
    plain = filled((3, 4, 5, 66))
    x = layouts(plain)[in_layout]

    unary = layouts(torch.zeros_like(plain))[out_layout]
    activation.gelu_quick(unary, x)
    torch.testing.assert_close(unary, activation.reference.gelu_quick(plain), rtol=1e-5, atol=1e-6)

    gated = layouts(torch.zeros(3, 4, 5, 33))[out_layout]
    activation.silu_and_mul(gated, x)
    expected = activation.reference.silu_and_mul(plain)
    torch.testing.assert_close(gated, expected, rtol=1e-5, atol=1e-6)


def test_a_wider_output_is_written_only_inside(activation: ModuleType) -> None:
    room = torch.full((6, 20), 7.0)
    activation.gelu(room[:, 4:12], filled((6, 8)))
    assert (room[:, :4] == 7).all()
    assert (room[:, 12:] == 7).all()


def test_an_expanded_input_is_read_and_an_expanded_output_refused(activation: ModuleType) -> None:
    row = filled((1, 8))
    out = torch.empty(5, 8)
    activation.silu(out, row.expand(5, 8))
    torch.testing.assert_close(out, torch.nn.functional.silu(row).expand(5, 8))
    with pytest.raises(RuntimeError, match="dimension 0: out is expanded"):
        activation.silu(torch.empty(1, 8).expand(5, 8), out)


def test_in_place(activation: ModuleType) -> None:
    x = filled((5, 40))
    expected = torch.nn.functional.silu(x)
    activation.silu(x, x)
    torch.testing.assert_close(x, expected)

    y = filled((5, 40))
    expected = torch.nn.functional.silu(y[:, :20]) * y[:, 20:]
    activation.silu_and_mul(y[:, :20], y)
    torch.testing.assert_close(y[:, :20], expected)


@pytest.mark.parametrize("shape", [(1, 2 * 300_001), (301, 2 * 1023), (300_001, 2)])
def test_the_number_of_threads_changes_no_bit(
    activation: ModuleType, shape: tuple[int, int]
) -> None:
    x = filled(shape)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            out = torch.empty(shape[0], shape[1] // 2)
            activation.gelu_and_mul(out, x)
            results.append(out)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(
        results[0], activation.reference.gelu_and_mul(x), rtol=1e-4, atol=1e-6
    )
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("out", "x", "message"),
    [
        (torch.empty(3), torch.empty(4), r"out must have the shape of input, \(4,\); found \(3,\)"),
        (torch.empty(4, dtype=torch.half), torch.empty(4), r"dtype of input, torch.float32; found"),
        (torch.empty(4).double(), torch.empty(4).double(), r"must be float32.*found torch.float64"),
        (torch.empty(4).int(), torch.empty(4).int(), r"must be float32.*found torch.int32"),
        (torch.empty(0).int(), torch.empty(0).int(), r"must be float32.*found torch.int32"),
        (torch.empty(4, device="meta"), torch.empty(4), r"device of input, cpu; found meta"),
    ],
)
def test_unary_mistakes(
    activation: ModuleType, out: torch.Tensor, x: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        activation.gelu(out, x)


@pytest.mark.parametrize(
    ("out_shape", "in_shape", "message"),
    [
        ((4,), (), r"size must be even; found shape \(\)"),
        ((2, 3), (2, 7), r"size must be even; found shape \(2, 7\)"),
        ((2, 8), (2, 8), r"out must have shape \(2, 4\); found \(2, 8\)"),
        ((3, 4), (2, 8), r"out must have shape \(2, 4\); found \(3, 4\)"),
    ],
)
def test_gated_mistakes(
    activation: ModuleType, out_shape: tuple[int, ...], in_shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        activation.gelu_and_mul(torch.empty(out_shape), torch.empty(in_shape))


def test_the_op_itself_does_not_trust_its_caller(activation: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="dimension 0"):
        activation.ops.gelu(torch.empty(9), torch.empty(8))
    with pytest.raises(RuntimeError, match="dimension 1"):
        activation.ops.silu_and_mul(torch.empty(2, 8), torch.empty(2, 8))
    with pytest.raises(RuntimeError, match="dtype"):
        activation.ops.gelu(torch.empty(8).half(), torch.empty(8))


def test_more_elements_than_31_bits_count(activation: ModuleType, device: str) -> None:
    if device != "cuda" or torch.cuda.mem_get_info()[0] < 30 << 30:
        pytest.skip("needs a GPU with 30 GiB of free memory")
    count = (1 << 31) + 9
    x = torch.empty(count, dtype=torch.float16).normal_()
    out = torch.full_like(x, 7.0)
    activation.silu(out, x)
    for part in (
        slice(0, 1 << 20),
        slice(count // 2, count // 2 + (1 << 20)),
        slice(-(1 << 20), None),
    ):
        expected = activation.reference.silu(x[part].double()).half()
        torch.testing.assert_close(out[part], expected, rtol=1e-3, atol=1e-6)
    assert (out[-(1 << 20) :] != 7.0).any()

    # One element a pack, since the rows begin between vectors; and gated.
    narrow = out[: 1 << 30].view(-1, 1 << 15)[:, 1:]
    wide = x[: 1 << 31].view(-1, 1 << 16)[:, 1:-1]
    activation.silu_and_mul(narrow, wide)
    expected = activation.reference.silu_and_mul(wide[-3:].double()).half()
    torch.testing.assert_close(narrow[-3:], expected, rtol=1e-3, atol=1e-6)
