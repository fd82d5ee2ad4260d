"""The gemm kernel on a Hopper GPU: every tile, every plan, streams, graphs and what runs beside it.

The kernel's own tests run there too: `pytest kernels-community/gemm/tests`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

PROJECT = Path(__file__).resolve().parents[2] / "kernels-community" / "gemm"
REPO_ID = "kernels-community/gemm"
TILES = 15
UNSPLIT = 0  # a tile that sums all of K in one order

if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip("needs a GPU of capability 9.0", allow_module_level=True)


@pytest.fixture(scope="module")
def gemm() -> ModuleType:
    if not list(PROJECT.glob("build/*-cu*")):
        pytest.skip(f"not built: run `kernel-builder build {PROJECT} --backend cuda` first")
    os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={PROJECT}")
    from kernels import get_kernel

    return get_kernel(REPO_ID)


def draw(m: int, n: int, k: int, *, widest: float = 1.0) -> tuple[torch.Tensor, ...]:
    """The arguments of `gemm_nt`, with scales from ``10**-widest`` to ``10**widest``."""
    torch.manual_seed(m + n + k)
    blocks = k // 128
    a_scale = 10.0 ** torch.empty(blocks, m, device="cuda").uniform_(-widest, widest)
    b_scale = 10.0 ** torch.empty(-(-n // 128), blocks, device="cuda").uniform_(-widest, widest)
    a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
    return a, b, a_scale.t(), b_scale


def assert_close(gemm: ModuleType, c: torch.Tensor, arguments: tuple[torch.Tensor, ...]) -> None:
    a, b, a_scale, b_scale = arguments
    expected = gemm.reference.gemm_nt(*arguments)
    sizes = gemm.reference.gemm_nt(a.float().abs(), b.float().abs(), a_scale, b_scale)
    # Half a unit of bfloat16, and the 13 bits with which the matrix unit sums.
    allowed = expected.abs() * 2.0**-8 + sizes * 2.0**-12
    difference = (c.double() - expected).abs()
    assert c.isfinite().all()
    assert (difference <= allowed).all(), (difference / allowed).max()
    if c.numel() > 1000:
        assert difference.norm() / expected.norm() < 2.5e-3


@pytest.mark.parametrize("widest", [0.0, 6.0], ids=["even", "wild"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 8, 128),
        (8, 136, 256),
        (100, 200, 640),
        (256, 512, 512),
        (300, 1544, 1792),
        (1030, 264, 384),
    ],
    ids=str,
)
@pytest.mark.parametrize("tile", range(TILES))
def test_every_tile_on_every_shape(
    gemm: ModuleType, tile: int, shape: tuple[int, int, int], widest: float
) -> None:
    arguments = draw(*shape, widest=widest)
    guarded = torch.full((shape[0] + 2, shape[1]), 7.0, dtype=torch.bfloat16, device="cuda")
    c = guarded[1:-1]
    c.fill_(float("nan"))
    gemm.ops.gemm_out(c, *arguments, True, tile)
    assert_close(gemm, c, arguments)
    assert (guarded[0] == 7).all()
    assert (guarded[-1] == 7).all()


# More rows than three of the highest tiles have, and a common multiple of all widths.
WHOLE_ROWS, WHOLE_COLUMNS = 1024, 11_520


@pytest.fixture(scope="module")
def whole() -> tuple[torch.Tensor, ...]:
    return draw(WHOLE_ROWS, WHOLE_COLUMNS, 896, widest=6.0)


@pytest.mark.parametrize("tile", range(TILES))
def test_tiles_at_the_edges_have_the_bits_of_whole_ones(
    gemm: ModuleType, tile: int, whole: tuple[torch.Tensor, ...]
) -> None:
    """They begin early and end with the matrix: what two of them write, both write alike."""
    a, b, a_scale, b_scale = whole
    expected = torch.empty(WHOLE_ROWS, WHOLE_COLUMNS, dtype=torch.bfloat16, device="cuda")
    gemm.ops.gemm_out(expected, *whole, True, tile)
    for m in (1, 3, 63, 65, 100, 129, 192, 255, 333, 1001):
        for n in (8, 264, 1544, 7168, 11_512):
            guarded = torch.full((m + 2, n), 7.0, dtype=torch.bfloat16, device="cuda")
            c = guarded[1:-1]
            c.fill_(float("nan"))
            columns = -(-n // 128)
            gemm.ops.gemm_out(c, a[:m], b[:n], a_scale[:m], b_scale[:columns], True, tile)
            assert torch.equal(c, expected[:m, :n]), (m, n)
            assert (guarded[0] == 7).all()
            assert (guarded[-1] == 7).all()


@pytest.fixture(scope="module")
def many_results(gemm: ModuleType) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """The arguments and the result of a product that is all writing: 200 MB, one block of K."""
    arguments = draw(16_384, 6144, 128)
    c = gemm.gemm_nt(*arguments)
    rows = slice(None, None, 61)
    assert_close(
        gemm, c[rows], (arguments[0][rows], arguments[1], arguments[2][rows], arguments[3])
    )
    return arguments, c


@pytest.mark.parametrize("tile", range(TILES))
def test_results_that_leave_slower_than_they_come(
    gemm: ModuleType, tile: int, many_results: tuple[tuple[torch.Tensor, ...], torch.Tensor]
) -> None:
    """A block must not write a tile over the one before it, which still leaves for memory.

    With one block of K there is one order of summing, so all tiles have the same bits.
    """
    arguments, expected = many_results
    c = torch.full_like(expected, float("nan"))
    gemm.ops.gemm_out(c, *arguments, True, tile)
    assert torch.equal(c, expected)


def test_there_are_no_other_tiles(gemm: ModuleType) -> None:
    arguments = draw(8, 8, 128)
    c = torch.empty(8, 8, dtype=torch.bfloat16, device="cuda")
    with pytest.raises(RuntimeError, match="there is no tile"):
        gemm.ops.gemm_out(c, *arguments, True, TILES)


# Chosen so that some plans have a tail: whole rounds of one tile, then the rows that are left.
PLANNED = [
    (7, 4096, 4096),
    (64, 4608, 7168),
    (999, 1536, 896),
    (2048, 4096, 1024),
    (4096, 4096, 512),
    (5000, 5000, 1280),
    (4097, 7168, 2048),
]


@pytest.mark.parametrize("shape", PLANNED, ids=str)
def test_every_plan(gemm: ModuleType, shape: tuple[int, int, int]) -> None:
    arguments = draw(*shape, widest=3.0)
    c = torch.full(shape[:2], float("nan"), dtype=torch.bfloat16, device="cuda")
    assert_close(gemm, gemm.gemm_nt(*arguments, c), arguments)


def turn(matrix: torch.Tensor, gap: int = 0) -> torch.Tensor:
    """The same matrix the other way round, each of its rows followed by `gap` unused bytes."""
    rows, columns = matrix.shape
    room = torch.full((columns, rows + gap), 0x7F, dtype=torch.uint8, device=matrix.device)
    room[:, :rows] = matrix.view(torch.uint8).t()
    return room.view(matrix.dtype)[:, :rows]


# Whole tiles of 128 x 128, more of them than run at once, rows that end within a tile or within 16
# bytes, and rows that do not begin at multiples of 16 bytes.
@pytest.mark.parametrize("gap", [0, 3, 16])
@pytest.mark.parametrize("which", ["a", "b", "both"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 8, 128),
        (130, 264, 640),
        (1024, 1536, 2048),
        (2000, 1008, 640),
        (2001, 1000, 640),
        (4096, 4096, 1024),
    ],
    ids=str,
)
def test_operands_that_lie_the_other_way(
    gemm: ModuleType, shape: tuple[int, int, int], which: str, gap: int
) -> None:
    a, b, a_scale, b_scale = draw(*shape)
    expected = gemm.gemm_nt(a, b, a_scale, b_scale)
    other_a = a.t() if which == "b" else turn(a, gap)
    other_b = b.t() if which == "a" else turn(b, gap)
    for _ in range(3):
        assert torch.equal(gemm.gemm(other_a, other_b, a_scale.t(), b_scale.t()), expected)


# With K up to 256 one kernel may turn both operands by itself. A block has one tile, many in one
# strip, or several strips; rows and columns end within a tile.
@pytest.mark.parametrize("gap", [0, 16, 3], ids=["dense", "gap", "copied"])
@pytest.mark.parametrize(
    "shape",
    [
        (2, 8, 128),
        (130, 264, 256),
        (896, 7168, 256),
        (1024, 7168, 256),
        (2000, 1008, 256),
        (16, 16_384, 256),
        (20_000, 520, 128),
        (6144, 7168, 128),
    ],
    ids=str,
)
def test_a_short_k_is_turned_within_the_product(
    gemm: ModuleType, shape: tuple[int, int, int], gap: int
) -> None:
    a, b, a_scale, b_scale = draw(*shape, widest=6.0)
    expected = torch.empty(shape[:2], dtype=torch.bfloat16, device="cuda")
    gemm.ops.gemm_out(expected, a, b, a_scale, b_scale, True, UNSPLIT)
    padding = -shape[0] % 16 + gap, -shape[1] % 16 + gap
    turned = turn(a, padding[0]), turn(b, padding[1])
    tile = UNSPLIT if gap == 3 else -1
    guarded = torch.full((shape[0] + 2, shape[1]), 7.0, dtype=torch.bfloat16, device="cuda")
    c = guarded[1:-1]
    for _ in range(3):
        c.fill_(float("nan"))
        gemm.ops.gemm_out(c, *turned, a_scale.t(), b_scale.t(), False, tile)
        assert torch.equal(c, expected)
    assert (guarded[0] == 7).all()
    assert (guarded[-1] == 7).all()
    assert_close(gemm, c[:3000], (a[:3000], b, a_scale[:3000], b_scale))


@pytest.mark.parametrize("k", [128, 256])
def test_turned_within_the_product_beside_other_kernels(gemm: ModuleType, k: int) -> None:
    """It may start before its predecessor ends, and its successor before it does."""
    a, b, a_scale, b_scale = draw(1024, 4096, k)
    sources = turn(a), turn(a.flip(0))
    b = turn(b)
    expected = [gemm.gemm(each, b, a_scale.t(), b_scale.t()).clone() for each in sources]
    room = torch.empty_like(sources[0])
    c = torch.empty(1024, 4096, dtype=torch.bfloat16, device="cuda")
    for _ in range(30):
        for source, result in zip(sources, expected, strict=True):
            room.copy_(source)
            gemm.gemm(room, b, a_scale.t(), b_scale.t(), c)
            copied = c.clone()
            gemm.gemm(sources[1], b, a_scale.t(), b_scale.t(), c)
            c.zero_()
            assert torch.equal(copied, result)


@pytest.mark.parametrize("shape", PLANNED[1:6], ids=str)
def test_the_same_bits_every_time(gemm: ModuleType, shape: tuple[int, int, int]) -> None:
    arguments = draw(*shape)
    first = gemm.gemm_nt(*arguments)
    for _ in range(20):
        assert torch.equal(gemm.gemm_nt(*arguments), first)


@pytest.mark.parametrize("shape", [(64, 512, 1024), (4096, 4096, 512)], ids=str)
def test_a_chain_of_kernels_keeps_its_order(gemm: ModuleType, shape: tuple[int, int, int]) -> None:
    """Kernels of ours may start before their predecessors end; what they read must be there."""
    a, b, a_scale, b_scale = draw(*shape)
    other = draw(*shape)[0].flip(0)
    expected = [gemm.gemm_nt(each, b, a_scale, b_scale).clone() for each in (a, other)]
    torch.cuda.synchronize()
    room = torch.empty_like(a)
    c = torch.empty(shape[:2], dtype=torch.bfloat16, device="cuda")
    for _ in range(30):
        for source, result in zip((a, other), expected, strict=True):
            room.copy_(source)
            gemm.gemm_nt(room, b, a_scale, b_scale, c)
            copied = c.clone()
            gemm.gemm_nt(other, b, a_scale, b_scale, c)
            c.zero_()
            assert torch.equal(copied, result)


def test_another_stream(gemm: ModuleType) -> None:
    arguments = draw(512, 1024, 1024)
    expected = gemm.gemm_nt(*arguments)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(4)]
    results = []
    for _ in range(5):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(gemm.gemm_nt(*arguments))
    torch.cuda.synchronize()
    assert all(torch.equal(each, expected) for each in results)


@pytest.mark.parametrize("shape", [(64, 4608, 1024), (4096, 4096, 512)], ids=str)
def test_a_graph_replays_with_new_inputs(gemm: ModuleType, shape: tuple[int, int, int]) -> None:
    a, b, a_scale, b_scale = draw(*shape)
    gemm.gemm_nt(a, b, a_scale, b_scale)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = gemm.gemm_nt(a, b, a_scale, b_scale)
        second = gemm.gemm_nt(a, b, a_scale, b_scale)
    a.copy_(a.flip(0))
    a_scale.mul_(0.5)
    graph.replay()
    expected = gemm.gemm_nt(a, b, a_scale, b_scale)
    assert torch.equal(first, expected)
    assert torch.equal(second, expected)


def test_a_result_beyond_two_billion_elements(gemm: ModuleType) -> None:
    m, n, k = 70_000, 32_768, 128
    a, b, a_scale, b_scale = draw(m, n, k)
    c = gemm.gemm_nt(a, b, a_scale, b_scale)
    rows = torch.tensor([0, 1, 40_000, 65_535, 65_536, m - 1], device="cuda")
    some = (a.view(torch.uint8)[rows].view(a.dtype), b, a_scale[rows], b_scale)
    assert_close(gemm, c[rows], some)


def test_compiled_by_inductor(gemm: ModuleType) -> None:
    arguments = draw(256, 512, 512)

    def step(*arguments: torch.Tensor) -> torch.Tensor:
        return torch.relu(gemm.gemm_nt(*arguments)) * 2

    compiled: Callable = torch.compile(step, fullgraph=True)
    assert torch.equal(compiled(*arguments), step(*arguments))
