"""Colour pictures to grey ones."""

# ruff: noqa: A002  (`input` is torch's own name for it)
from __future__ import annotations

import torch

from . import reference as reference  # for tests and benchmarks, not part of the interface
from ._ops import add_op_namespace_prefix, ops

__all__ = ["img2gray"]

_DTYPES = (torch.uint8, torch.float32, torch.float64, torch.float16, torch.bfloat16)
# The size 3 of the channels, counted from the end; what the shape looks like, for errors.
_LAYOUTS = {
    "hwc": (-1, "(H, W, 3) or (N, H, W, 3)"),
    "chw": (-3, "(3, H, W) or (N, 3, H, W)"),
}


def img2gray(input: torch.Tensor, weights: str = "default", *, layout: str = "hwc") -> torch.Tensor:
    """Weigh the red, green and blue of every pixel.

    Args:
        input: a picture (H, W, 3) or a batch of them (N, H, W, 3), in RGB order; uint8 or
            floating point; any strides.
        weights: ``"default"`` (0.21 R + 0.72 G + 0.07 B), ``"bt601"`` (0.299, 0.587, 0.114)
            or ``"bt709"`` (0.2126, 0.7152, 0.0722).
        layout: ``"hwc"``, or ``"chw"`` for pictures (3, H, W) and batches (N, 3, H, W). It is
            never guessed from the shape.

    Returns:
        (H, W) or (N, H, W) of the dtype of `input`, contiguous. For uint8 the exact sum with its
        decimals cut off, so grey colours keep their value. For floating point the sum from left to
        right in float32 (float64 for float64 input), rounded to the dtype.

    Raises:
        ValueError: the shape, dtype, weights or layout is none of these.
    """
    if layout not in _LAYOUTS:
        raise ValueError(f"img2gray: layout must be 'hwc' or 'chw'; found {layout!r}")
    if weights not in reference.WEIGHTS:
        names = ", ".join(map(repr, reference.WEIGHTS))
        raise ValueError(f"img2gray: weights must be one of {names}; found {weights!r}")
    channel_dim, shapes = _LAYOUTS[layout]
    shape = input.shape
    if len(shape) not in (3, 4) or shape[channel_dim] != 3:
        raise ValueError(
            f"img2gray: with layout={layout!r} input must have shape {shapes}; found {tuple(shape)}"
        )
    if input.dtype not in _DTYPES:
        raise ValueError(
            f"img2gray: input must be uint8 or floating point (float16, bfloat16, float32,"
            f" float64); found {input.dtype} of shape {tuple(shape)}"
        )
    image = input if channel_dim == -1 else input.movedim(channel_dim, -1)
    out = input.new_empty(image.shape[:-1])
    _fill(out, image, weights)
    return out


def _fill_out(*_arguments: object) -> None:
    """The op only writes into `out`, whose shape is already known."""


# The overload itself: torch would look for it again in every call.
_fill = ops.img2gray.default
for _name in ("img2gray", "img2gray_by_grid"):
    if hasattr(ops, _name):
        torch.library.register_fake(add_op_namespace_prefix(_name), _fill_out)
