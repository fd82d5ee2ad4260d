"""Colour pictures to grey ones."""

# ruff: noqa: A002  (`input` is torch's own name for it)
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import is_grad_enabled
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from . import reference as reference  # for tests and benchmarks, not part of the interface
from ._ops import add_op_namespace_prefix, ops

__all__ = ["img2gray"]

_DTYPES = (torch.uint8, torch.float32, torch.float64, torch.float16, torch.bfloat16)
# The size 3 of the channels, counted from the end; what the shape looks like, for errors.
_LAYOUTS = {
    "hwc": (-1, "(H, W, 3) or (N, H, W, 3)"),
    "chw": (-3, "(3, H, W) or (N, 3, H, W)"),
}

# What tells the level of forward mode, below 0 where there is none.
_forward_mode: Any = (
    forward_ad if hasattr(forward_ad, "_current_level") else SimpleNamespace(_current_level=-1)
)


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
        right in float32 (float64 for float64 input), rounded to the dtype. Where autograd records
        and `input` requires a gradient, it has one.

    Raises:
        ValueError: the shape, dtype, weights or layout is none of these.
        NotImplementedError: `input` has a tangent of forward-mode differentiation.
    """
    if _forward_mode._current_level >= 0:
        _check_no_tangent(input)
    try:
        if is_grad_enabled() and input.requires_grad:
            gray: torch.Tensor = _Recorder.apply(input, weights, layout)
        elif is_dynamo_compiling():
            gray = _value(input, _NUMBERS[weights], _CHANNELS_FIRST[layout])
        else:
            gray = _value_directly(input, _NUMBERS[weights], _CHANNELS_FIRST[layout])
    # The op itself refuses what is wrong. Only then it is looked at here, to say it better: to ask
    # a tensor for its shape from Python takes as long as a part of the call.
    except (RuntimeError, KeyError):
        _check(input, weights, layout)
        raise
    return gray


class _Recorder(torch.autograd.Function):
    """Grey where a gradient is wanted, which is the weights times that of the result."""

    @staticmethod
    def forward(ctx: Any, image: torch.Tensor, weights: str, layout: str) -> torch.Tensor:
        ctx.weights, ctx.layout = weights, layout
        gray: torch.Tensor = _value(image, _NUMBERS[weights], _CHANNELS_FIRST[layout])
        return gray

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        numerators, denominator = reference.WEIGHTS[ctx.weights]
        wide = grad if grad.dtype == torch.float64 else grad.float()
        parts = [wide * (numerator / denominator) for numerator in numerators]
        return torch.stack(parts, dim=_LAYOUTS[ctx.layout][0]).to(grad.dtype), None, None


def _check(input: torch.Tensor, weights: str, layout: str) -> None:
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


def _check_no_tangent(input: torch.Tensor) -> None:
    if forward_ad.unpack_dual(input).tangent is not None:
        raise NotImplementedError(
            "img2gray: input has a tangent (torch.autograd.forward_ad or torch.func.jvp), and this"
            " kernel has only gradients of reverse mode; reference.img2gray has both"
        )


def _fill_out(_out: torch.Tensor, _image: torch.Tensor, weights: int) -> None:
    """The op only writes into `out`, whose shape is already known."""
    _name_of_weights(weights)


def _make_value(image: torch.Tensor, weights: int, channels_first: bool) -> torch.Tensor:
    layout = "chw" if channels_first else "hwc"
    _check(image, _name_of_weights(weights), layout)
    sizes = list(image.shape)
    del sizes[_LAYOUTS[layout][0]]
    return image.new_empty(sizes)


def _name_of_weights(number: int) -> str:
    """Return the name of weights that an op is given by number; refuse others as the op does."""
    names = list(_NUMBERS)
    if not 0 <= number < len(names):
        spelled = "0 (default), 1 (bt601) or 2 (bt709)"
        raise RuntimeError(f"weights must be {spelled}, not {number}")
    return names[number]


# How the ops spell what the function is given.
_CHANNELS_FIRST = {"hwc": False, "chw": True}
_NUMBERS = {name: number for number, name in enumerate(reference.WEIGHTS)}
# The overload itself, which torch would look for again in every call, and what its wrapper in
# Python calls and does no more than that.
_value = ops.img2gray_value.default
_value_directly = getattr(_value, "_op", _value)
for _name in ("img2gray", "img2gray_by_grid"):
    if hasattr(ops, _name):
        torch.library.register_fake(add_op_namespace_prefix(_name), _fill_out)
torch.library.register_fake(add_op_namespace_prefix("img2gray_value"), _make_value)
