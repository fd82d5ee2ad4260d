"""What ``kernels benchmark`` times: `img2gray` against eager torch, torch.compile and the plain kernel.

The eager formula is exact, as the kernel is: its sum is one of whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import torch

from kernels.bench import Case

GPU_SIZES = [(8640, 15360), (2160, 3840), (1080, 1920), (480, 640)]
CPU_SIZES = [(1080, 1920), (480, 640)]


def exact(pixels: torch.Tensor) -> torch.Tensor:
    """What one would write without the kernel and be right."""
    red, green, blue = pixels.int().unbind(-1)
    return ((21 * red + 72 * green + 7 * blue) // 100).to(torch.uint8)


def rough(pixels: torch.Tensor) -> torch.Tensor:
    """What one would write first; in float32 the cut falls one too low for some colours."""
    red, green, blue = pixels.unbind(-1)
    return (0.21 * red + 0.72 * green + 0.07 * blue).to(pixels.dtype)


def cases(kernel: ModuleType, device: torch.device) -> Iterator[Case]:
    on_gpu = device.type != "cpu"
    for height, width in GPU_SIZES if on_gpu else CPU_SIZES:
        for layout in ("hwc", "chw"):
            yield picture(kernel, height, width, layout=layout, dtype=torch.uint8, device=device)
    height, width = (2160, 3840) if on_gpu else (1080, 1920)
    for layout in ("hwc", "chw"):
        yield picture(kernel, height, width, layout=layout, dtype=torch.float32, device=device)


def picture(
    kernel: ModuleType,
    height: int,
    width: int,
    *,
    layout: str,
    dtype: torch.dtype,
    device: torch.device,
) -> Case:
    torch.manual_seed(0)
    shape = (height, width, 3) if layout == "hwc" else (3, height, width)
    image = torch.randint(0, 256, shape, dtype=torch.uint8, device=device).to(dtype)
    pixels = image if layout == "hwc" else image.movedim(0, -1)
    way = exact if dtype == torch.uint8 else rough
    peers: dict[str, Callable[[], torch.Tensor]] = {"eager": partial(way, pixels)}
    references: dict[str, Callable[[], torch.Tensor]] = {}
    if device.type != "cpu":
        torch._dynamo.config.recompile_limit = 256
        peers["compile"] = partial(torch.compile(way, dynamic=False), pixels)
        references["compile of the rough formula"] = partial(
            torch.compile(rough, dynamic=False), pixels
        )
        by_grid = kernel.ops.img2gray_by_grid.default

        def grid() -> torch.Tensor:
            out = pixels.new_empty(height, width)  # as every other way makes its result
            by_grid(out, pixels, 0)
            return out

        peers["2D grid"] = grid
    moved = 4 * height * width * image.element_size()
    source = torch.empty(moved // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    references["copy"] = lambda: target.copy_(source)
    return Case(
        op="img2gray" if layout == "hwc" else "img2gray_chw",
        shape=shape,
        dtype=str(dtype).removeprefix("torch."),
        ours=lambda: kernel.img2gray(image, layout=layout),
        expected=lambda: kernel.reference.img2gray(pixels),
        tolerance=0.0 if dtype == torch.uint8 else 1e-6,
        peers=peers,
        references=references,
        moved_bytes=moved,
    )
