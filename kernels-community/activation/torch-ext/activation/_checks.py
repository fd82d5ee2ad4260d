"""What the arguments of an op must look like, with an error for each way in which they do not."""

# ruff: noqa: A002  (`input` is torch's own name for it)
from __future__ import annotations

import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_unary(op: str, out: torch.Tensor, input: torch.Tensor) -> None:
    """Require that `out` can hold ``f(input)``.

    Raises:
        ValueError: another shape, dtype or device than `input`'s, or a dtype without a kernel.
    """
    if out.shape != input.shape:
        raise ValueError(
            f"{op}: out must have the shape of input, {_spell(input.shape)};"
            f" found {_spell(out.shape)}"
        )
    _check_kind(op, out, input)


def check_gated(op: str, out: torch.Tensor, input: torch.Tensor) -> None:
    """Require that `out` can hold a product of the two halves of ``input``'s last dimension.

    Raises:
        ValueError: `input` has no even last dimension, `out` is not half as wide, or it has another
            dtype or device.
    """
    if input.dim() == 0 or input.shape[-1] % 2:
        raise ValueError(
            f"{op}: the last dimension of input holds two halves, so its size must be even;"
            f" found shape {_spell(input.shape)}"
        )
    expected = (*input.shape[:-1], input.shape[-1] // 2)
    if out.shape != expected:
        raise ValueError(
            f"{op}: for an input of shape {_spell(input.shape)} out must have shape"
            f" {_spell(expected)}; found {_spell(out.shape)}"
        )
    _check_kind(op, out, input)


def _check_kind(op: str, out: torch.Tensor, input: torch.Tensor) -> None:
    if out.dtype != input.dtype:
        raise ValueError(
            f"{op}: out must have the dtype of input, {input.dtype}; found {out.dtype}"
        )
    if input.dtype not in DTYPES:
        raise ValueError(f"{op}: input must be float32, bfloat16 or float16; found {input.dtype}")
    if out.device != input.device:
        raise ValueError(
            f"{op}: out must be on the device of input, {input.device}; found {out.device}"
        )


def _spell(shape: torch.Size | tuple[int, ...]) -> str:
    return str(tuple(shape))
