"""What the arguments must look like, with an error for each way in which they do not."""

from __future__ import annotations

from collections.abc import Mapping

import torch

_NEUTRAL = {
    "dropout_p": 0.0,
    "return_dropout_mask": False,
    "zero_centered_weight": False,
}


def check_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
) -> None:
    """Require that `weight` and `bias` fit the last dimension of `x`, and `residual` all of it.

    Raises:
        ValueError: another shape or device, or a dtype that is not floating.
    """
    if x.dim() == 0 or not x.is_floating_point():
        raise ValueError(
            "norm: x must have a last dimension to normalise and a floating dtype;"
            f" found shape {tuple(x.shape)} and {x.dtype}"
        )
    _check_beside(x, "weight", weight, (x.shape[-1],))
    _check_beside(x, "bias", bias, (x.shape[-1],))
    _check_beside(x, "residual", residual, tuple(x.shape))


def _check_beside(
    x: torch.Tensor, name: str, other: torch.Tensor | None, shape: tuple[int, ...]
) -> None:
    if other is None:
        return
    if tuple(other.shape) != shape:
        raise ValueError(
            f"norm: for an x of shape {tuple(x.shape)} {name} must have shape {shape};"
            f" found {tuple(other.shape)}"
        )
    if not other.is_floating_point():
        raise ValueError(f"norm: {name} must have a floating dtype; found {other.dtype}")
    if other.device != x.device:
        raise ValueError(
            f"norm: {name} must be on the device of x, {x.device}; found {other.device}"
        )


def refuse_unsupported(function: str, options: Mapping[str, object]) -> None:
    """Let pass options that ask for nothing, such as ``dropout_p=0.0``.

    Raises:
        ValueError: any other option.
    """
    asked = [f"{k}={v!r}" for k, v in options.items() if v is not None and v != _NEUTRAL.get(k)]
    if asked:
        raise ValueError(
            f"{function}: not supported: {', '.join(asked)}; it knows x, weight, bias, residual,"
            " eps, prenorm and residual_in_fp32"
        )
