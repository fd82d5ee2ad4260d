"""`img2gray` against its reference, bit by bit: colours, shapes, layouts, dtypes, mistakes."""

from __future__ import annotations

import ctypes
from types import ModuleType

import pytest
import torch

WEIGHTS = ["default", "bt601", "bt709"]
REALS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def forget_compiled_graphs() -> None:
    torch._dynamo.reset()


def picture(*shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    torch.manual_seed(0)
    image = torch.randint(0, 256, shape, dtype=torch.uint8)
    return image if dtype == torch.uint8 else (torch.rand(shape, dtype=torch.float64)).to(dtype)


class Arena(ctypes.Structure):
    """What glibc tells of its main arena, malloc(3)."""

    _fields_ = [(f"field{number}", ctypes.c_size_t) for number in range(7)] + [
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


def allocated_bytes() -> int:
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("only glibc 2.33 and later tell what is allocated")
    library.mallinfo2.restype = Arena
    return library.mallinfo2().uordblks


def assert_exact(kernel: ModuleType, image: torch.Tensor, weights: str = "default") -> None:
    found = kernel.img2gray(image, weights)
    expected = kernel.reference.img2gray(image, weights)
    assert found.dtype == image.dtype
    assert found.shape == image.shape[:-1]
    assert found.is_contiguous()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_all_colours(img2gray: ModuleType, weights: str) -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    plane = torch.cartesian_prod(levels, levels)
    for red in levels:
        image = torch.cat([red.expand(len(plane), 1), plane], dim=1).reshape(256, 256, 3)
        assert_exact(img2gray, image, weights)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_grey_stays_what_it_is(img2gray: ModuleType, weights: str) -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    image = levels.reshape(16, 16, 1).expand(16, 16, 3)
    assert torch.equal(img2gray.img2gray(image, weights), levels.reshape(16, 16))


def test_the_decimals_are_cut_off(img2gray: ModuleType) -> None:
    # 0.21, 0.72 and 0.07 of 255 are 53.55, 183.6 and 17.85.
    image = torch.tensor([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=torch.uint8)
    assert img2gray.img2gray(image).tolist() == [[53, 183, 17]]


@pytest.mark.parametrize("dtype", [torch.uint8, *REALS], ids=str)
@pytest.mark.parametrize(
    "size", [(1, 1), (1, 31), (1, 32), (3, 33), (5, 63), (7, 97), (0, 5), (5, 0), (97, 1)]
)
def test_sizes_around_the_vector_width(
    img2gray: ModuleType, size: tuple[int, int], dtype: torch.dtype
) -> None:
    assert_exact(img2gray, picture(*size, 3, dtype=dtype))
    assert_exact(img2gray, picture(2, *size, 3, dtype=dtype))
    assert_exact(img2gray, picture(0, *size, 3, dtype=dtype))


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_floating_point_is_rounded_step_by_step(
    img2gray: ModuleType, weights: str, dtype: torch.dtype
) -> None:
    assert_exact(img2gray, picture(40, 50, 3, dtype=dtype) * 1000 - 300, weights)


def test_floating_point_may_be_special(img2gray: ModuleType) -> None:
    inf, nan = float("inf"), float("nan")
    image = torch.tensor([[[inf, 0.0, 1.0], [nan, 0.0, 1.0], [inf, -inf, 0.0]]])
    grey = img2gray.img2gray(image)
    assert grey[0, 0] == inf
    assert grey[0, 1:].isnan().all()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
def test_channels_first(img2gray: ModuleType, dtype: torch.dtype) -> None:
    for shape in [(37, 45, 3), (4, 37, 45, 3), (3, 3, 3), (3, 3, 3, 3)]:
        image = picture(*shape, dtype=dtype)
        planes = image.movedim(-1, -3).contiguous()
        found = img2gray.img2gray(planes, layout="chw")
        assert torch.equal(found, img2gray.reference.img2gray(image))
        crop = planes[..., 1:, 2:]
        expected = img2gray.reference.img2gray(image[..., 1:, 2:, :])
        assert torch.equal(img2gray.img2gray(crop, layout="chw"), expected)
        assert torch.equal(img2gray.img2gray(image.movedim(-1, -3), layout="chw"), found)


def test_any_strides(img2gray: ModuleType) -> None:
    big = picture(4, 60, 70, 4)
    assert_exact(img2gray, big[..., :3])
    assert_exact(img2gray, big[0, :, :, 1:])
    crop = picture(4, 60, 70, 3)
    assert_exact(img2gray, crop[:, 7:50, 11:64])
    assert_exact(img2gray, crop[1::2, ::3, ::2])
    assert_exact(img2gray, crop.transpose(1, 2))
    assert_exact(img2gray, crop.flip(-1))
    planes = picture(4, 3, 60, 70)
    assert_exact(img2gray, planes.movedim(1, -1)[:, 5:50, 3:66])
    assert_exact(img2gray, planes.select(1, 0).unsqueeze(-1).expand(4, 60, 70, 3))
    assert_exact(img2gray, crop.contiguous(memory_format=torch.channels_last))


def test_nothing_beyond_the_image_is_touched(img2gray: ModuleType) -> None:
    room = torch.full((64 + 33 * 40 + 64,), 7, dtype=torch.uint8)
    img2gray.ops.img2gray(room[64:-64].view(33, 40), picture(33, 40, 3), 0)
    assert (room[:64] == 7).all()
    assert (room[-64:] == 7).all()


def test_calls_keep_no_memory(img2gray: ModuleType) -> None:
    image = picture(4, 5, 3)
    for _ in range(100):
        img2gray.img2gray(image)
    before = allocated_bytes()
    for _ in range(2000):
        img2gray.img2gray(image, "bt709")
    assert allocated_bytes() - before < 2000 * 16


def test_the_number_of_threads_changes_nothing(img2gray: ModuleType) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            assert_exact(img2gray, picture(1080, 1917, 3))
            assert_exact(img2gray, picture(3, 300, 301, 3)[:, :, :299])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("shape", "layout", "message"),
    [
        ((5, 6), "hwc", r"\(H, W, 3\) or \(N, H, W, 3\); found \(5, 6\)"),
        ((5, 6, 4), "hwc", r"found \(5, 6, 4\)"),
        ((3, 5, 6), "hwc", r"found \(3, 5, 6\)"),
        ((1, 1, 5, 6, 3), "hwc", r"found \(1, 1, 5, 6, 3\)"),
        ((5, 6, 3), "chw", r"\(3, H, W\) or \(N, 3, H, W\); found \(5, 6, 3\)"),
        ((), "hwc", r"found \(\)"),
    ],
)
def test_wrong_shapes_are_named(
    img2gray: ModuleType, shape: tuple[int, ...], layout: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        img2gray.img2gray(torch.zeros(shape, dtype=torch.uint8), layout=layout)


def test_other_mistakes_are_named(img2gray: ModuleType) -> None:
    image = picture(4, 5, 3)
    with pytest.raises(ValueError, match=r"found torch.int32 of shape \(4, 5, 3\)"):
        img2gray.img2gray(image.int())
    with pytest.raises(ValueError, match="'default', 'bt601', 'bt709'; found 'bt2020'"):
        img2gray.img2gray(image, "bt2020")
    with pytest.raises(ValueError, match="'hwc' or 'chw'; found 'whc'"):
        img2gray.img2gray(image, layout="whc")


def test_the_op_itself_does_not_trust_its_caller(img2gray: ModuleType) -> None:
    image = picture(4, 5, 3)
    with pytest.raises(RuntimeError, match="dimension 1"):
        img2gray.ops.img2gray(torch.empty(4, 6, dtype=torch.uint8), image, 0)
    with pytest.raises(RuntimeError, match="contiguous"):
        img2gray.ops.img2gray(torch.empty(5, 4, dtype=torch.uint8).t(), image, 0)
    with pytest.raises(RuntimeError, match="dtype"):
        img2gray.ops.img2gray(torch.empty(4, 5), image, 0)
    with pytest.raises(RuntimeError, match=r"weights must be 0 .* not 3"):
        img2gray.ops.img2gray(torch.empty(4, 5, dtype=torch.uint8), image, 3)


@pytest.mark.parametrize("number", [-1, 3, 7])
def test_a_graph_refuses_weights_as_the_ops_do(img2gray: ModuleType, number: int) -> None:
    value, fill = img2gray.ops.img2gray_value.default, img2gray.ops.img2gray.default
    with pytest.raises(RuntimeError, match=rf"weights must be 0 .* not {number}") as real:
        value(picture(4, 5, 3), number, False)
    said = str(real.value).splitlines()[0]
    image, out = (
        torch.empty(*shape, dtype=torch.uint8, device="meta") for shape in ((4, 5, 3), (4, 5))
    )
    with pytest.raises(RuntimeError) as fake:
        value(image, number, False)
    assert str(fake.value) in said
    with pytest.raises(RuntimeError) as fake:
        fill(out, image, number)
    assert str(fake.value) in said


@pytest.mark.parametrize("dtype", [torch.uint8, *REALS], ids=str)
def test_the_plain_kernel_computes_the_same(
    img2gray: ModuleType, device: str, dtype: torch.dtype
) -> None:
    if device == "cpu":
        pytest.skip("there is one kernel for the CPU")
    for image in (
        picture(37, 45, 3, dtype=dtype),
        picture(3, 37, 45, 3, dtype=dtype),
        picture(3, 3, 37, 45, dtype=dtype).movedim(1, -1)[:, 5:, 3:-2],
    ):
        out = torch.empty(image.shape[:-1], dtype=dtype)
        img2gray.ops.img2gray_by_grid(out, image, 2)
        assert torch.equal(out, img2gray.reference.img2gray(image, "bt709"))


def test_more_bytes_than_31_bits_count(img2gray: ModuleType, device: str) -> None:
    if device != "cuda" or torch.cuda.mem_get_info()[0] < 8 << 30:
        pytest.skip("needs a GPU with 8 GiB of free memory")
    image = torch.randint(0, 256, (27000, 27001, 3), dtype=torch.uint8)
    grey = img2gray.img2gray(image)
    for rows in (slice(0, 20), slice(13000, 13020), slice(-20, None)):
        assert torch.equal(grey[rows], img2gray.reference.img2gray(image[rows]))


@pytest.mark.parametrize("layout", ["hwc", "chw"])
@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_float_picture_has_a_gradient(
    img2gray: ModuleType, weights: str, dtype: torch.dtype, layout: str
) -> None:
    pixels = picture(2, 4, 5, 3, dtype=dtype)
    image = (pixels if layout == "hwc" else pixels.movedim(-1, 1).contiguous()).requires_grad_()
    along = torch.rand(2, 4, 5).to(dtype)
    (found,) = torch.autograd.grad(img2gray.img2gray(image, weights, layout=layout), image, along)

    exact = pixels.double().requires_grad_()
    (expected,) = torch.autograd.grad(
        img2gray.reference.img2gray(exact, weights), exact, along.double()
    )
    found = found if layout == "hwc" else found.movedim(1, -1)
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected.to(dtype))
    with torch.no_grad():
        assert not img2gray.img2gray(image, weights, layout=layout).requires_grad


def test_the_gradient_can_be_differentiated_and_compiled(img2gray: ModuleType) -> None:
    image = picture(3, 4, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(img2gray.img2gray, (image,))
    assert torch.autograd.gradgradcheck(img2gray.img2gray, (image,))

    def brightness(pixels: torch.Tensor) -> torch.Tensor:
        return img2gray.img2gray(pixels * 2, "bt601").square().mean()

    compiled = torch.compile(brightness, fullgraph=True, backend="aot_eager")
    found, expected = (torch.autograd.grad(f(image), image) for f in (compiled, brightness))
    torch.testing.assert_close(found, expected)


def test_other_derivatives_are_refused_not_zero(img2gray: ModuleType) -> None:
    image = picture(3, 4, 3, dtype=torch.float32)
    with pytest.raises(NotImplementedError, match="img2gray: input has a tangent"):
        torch.func.jvp(img2gray.img2gray, (image,), (image,))
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda pixels: img2gray.img2gray(pixels).sum())(image)


@pytest.mark.parametrize("dtype", [torch.uint8, *REALS], ids=str)
def test_opcheck(img2gray: ModuleType, dtype: torch.dtype) -> None:
    out = torch.empty(4, 5, dtype=dtype)
    image = picture(4, 5, 3, dtype=dtype)
    torch.library.opcheck(img2gray.ops.img2gray.default, (out, image, 0))
    value = img2gray.ops.img2gray_value.default
    torch.library.opcheck(value, (image, 2, False))
    torch.library.opcheck(value, (image.movedim(-1, 0), 0, True))
    torch.library.opcheck(value, (picture(2, 3, 4, 5, dtype=dtype), 0, True))


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_it_compiles_into_one_graph(img2gray: ModuleType, layout: str) -> None:
    def invert(image: torch.Tensor) -> torch.Tensor:
        return 255 - img2gray.img2gray(image, "bt601", layout=layout)

    image = picture(3, 5, 3)
    compiled = torch.compile(invert, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(image), invert(image))


def test_the_public_names(img2gray: ModuleType) -> None:
    assert img2gray.__all__ == ["img2gray"]
