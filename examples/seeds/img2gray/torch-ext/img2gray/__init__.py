"""Colour pictures to grey ones: 0.21 R + 0.72 G + 0.07 B, decimals cut off."""

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["img2gray"]


def img2gray(input: torch.Tensor) -> torch.Tensor:
    """Turn (H, W, 3) of uint8 into (H, W) of uint8.

    Raises:
        ValueError: the shape or dtype is another one.
    """
    if input.dim() != 3 or input.shape[-1] != 3 or input.dtype != torch.uint8:
        raise ValueError(
            f"img2gray: input must have shape (H, W, 3) and dtype torch.uint8;"
            f" found {tuple(input.shape)} and {input.dtype}"
        )
    input = input.contiguous()
    output = input.new_empty(input.shape[:-1])
    ops.img2gray(input, output)
    return output


@torch.library.register_fake(add_op_namespace_prefix("img2gray"))
def _img2gray_fake(input: torch.Tensor, output: torch.Tensor) -> None:
    return None
