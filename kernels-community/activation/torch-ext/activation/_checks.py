"""What the arguments of an op must look like, with an error for each way in which they do not."""

# ruff: noqa: A002  (`input` is torch's own name for it)
from __future__ import annotations

import torch
from torch.autograd import forward_ad

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_input(op: str, input: torch.Tensor) -> None:
    """Require that there is a kernel for `input`, and two halves where `op` is gated.

    Raises:
        ValueError: a dtype without a kernel; for the gated ops no even last dimension.
    """
    if is_gated(op) and (input.dim() == 0 or input.shape[-1] % 2):
        raise ValueError(
            f"{op}: the last dimension of input holds two halves, so its size must be even;"
            f" found shape {_spell(input.shape)}"
        )
    if input.dtype not in DTYPES:
        raise ValueError(f"{op}: input must be float32, bfloat16 or float16; found {input.dtype}")


def check_output(op: str, out: torch.Tensor, input: torch.Tensor, *_options: float) -> None:
    """Require that `out` can hold what `op` makes of `input`.

    Raises:
        ValueError: `out` has another shape, dtype or device, or `input` is not as `op` needs it.
    """
    if is_gated(op):
        check_input(op, input)
        expected = (*input.shape[:-1], input.shape[-1] // 2)
        if out.shape != expected:
            raise ValueError(
                f"{op}: for an input of shape {_spell(input.shape)} out must have shape"
                f" {_spell(expected)}; found {_spell(out.shape)}"
            )
    elif out.shape != input.shape:
        raise ValueError(
            f"{op}: out must have the shape of input, {_spell(input.shape)};"
            f" found {_spell(out.shape)}"
        )
    if out.dtype != input.dtype:
        raise ValueError(
            f"{op}: out must have the dtype of input, {input.dtype}; found {out.dtype}"
        )
    check_input(op, input)
    if out.device != input.device:
        raise ValueError(
            f"{op}: out must be on the device of input, {input.device}; found {out.device}"
        )


def check_no_tangent(op: str, input: torch.Tensor) -> None:
    """Refuse an `input` of forward-mode differentiation, whose result would have a slope of 0.

    Raises:
        NotImplementedError: `input` has a tangent.
    """
    if forward_ad.unpack_dual(input).tangent is not None:
        raise NotImplementedError(
            f"{op}: input has a tangent (torch.autograd.forward_ad or torch.func.jvp), and this"
            f" kernel has only gradients of reverse mode; reference.{op} has both"
        )


def is_gated(op: str) -> bool:
    """Whether `op` multiplies two halves of its input."""
    return "_and_" in op


def _spell(shape: torch.Size | tuple[int, ...]) -> str:
    return str(tuple(shape))
