"""The functions of this kernel: each calls its op, and explains what is wrong if that refuses."""

from __future__ import annotations

import torch

from ._checks import check_product
from ._ops import add_op_namespace_prefix, ops

__all__ = ["gemm", "gemm_nt"]

_CHOOSE = -1

_Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    c: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``c = (a · a_scale)ᵀ (b · b_scale)``, M x N in bfloat16, on the current stream.

    The strides are free and choose the path: an `a` and `b` whose K is the dense dimension (``A.t()``
    of an M x K matrix) are read as they lie, others are first turned on the device.

    Args:
        a: K x M, float8_e4m3fn (on the CPU also float8_e4m3fnuz); K a multiple of 128.
        b: K x N of the same dtype; N a multiple of 8.
        a_scale: float32 of shape K/128 x M: one for each row of the product and block of K.
        b_scale: float32 of shape K/128 x ⌈N/128⌉: one for each 128 x 128 block of `b`.
        c: where to write; a new tensor if None.

    Raises:
        ValueError: a shape, dtype or device that does not fit.
        RuntimeError: a gradient is asked for, or the GPU is no Hopper.
    """
    return _multiply("gemm", (a, b, a_scale, b_scale), c, nt=False)


def gemm_nt(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    c: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``c = (a · a_scale) (b · b_scale)ᵀ``: `gemm` with every operand the other way round.

    Args:
        a: M x K; dense rows are Hopper's native layout.
        b: N x K of the same dtype.
        a_scale: float32 of shape M x K/128, best as the transpose of a dense K/128 x M.
        b_scale: float32 of shape ⌈N/128⌉ x K/128.
        c: M x N in bfloat16, where to write; a new tensor if None.

    Raises:
        ValueError: a shape, dtype or device that does not fit.
        RuntimeError: a gradient is asked for, or the GPU is no Hopper.
    """
    return _multiply("gemm_nt", (a, b, a_scale, b_scale), c, nt=True)


def _multiply(op: str, operands: _Operands, c: torch.Tensor | None, *, nt: bool) -> torch.Tensor:
    _, _, a_scale, b_scale = operands
    if (a_scale.requires_grad or b_scale.requires_grad) and torch.is_grad_enabled():
        raise RuntimeError(
            f"{op} has no backward, and a scale requires a gradient;"
            " pass scale.detach(), or call it under torch.no_grad()"
        )
    if torch.compiler.is_compiling():
        check_product(op, operands, c, nt=nt)
        return _call(operands, c, nt=nt)
    try:
        return _call(operands, c, nt=nt)
    except (RuntimeError, NotImplementedError):
        # The op itself is strict but terse. Checking only now keeps the host fast.
        check_product(op, operands, c, nt=nt)
        raise


def _call(operands: _Operands, c: torch.Tensor | None, *, nt: bool) -> torch.Tensor:
    if c is None:
        return _gemm_op(*operands, nt)
    _gemm_out_op(c, *operands, nt, _CHOOSE)
    return c


# Looked up once: an attribute of torch.ops costs more than the check of a tensor.
_gemm_op = ops.gemm.default
_gemm_out_op = ops.gemm_out.default


@torch.library.register_fake(add_op_namespace_prefix("gemm"))
def _gemm_fake(*arguments: torch.Tensor | bool) -> torch.Tensor:
    *operands, nt = arguments
    check_product("gemm_nt" if nt else "gemm", operands, None, nt=nt)
    a, b = operands[:2]
    m, n = (a.shape[0], b.shape[0]) if nt else (a.shape[1], b.shape[1])
    return a.new_empty((m, n), dtype=torch.bfloat16)


@torch.library.register_fake(add_op_namespace_prefix("gemm_out"))
def _gemm_out_fake(c: torch.Tensor, *arguments: torch.Tensor | bool | int) -> None:
    *operands, nt, _tile = arguments
    check_product("gemm_nt" if nt else "gemm", operands, c, nt=nt)
