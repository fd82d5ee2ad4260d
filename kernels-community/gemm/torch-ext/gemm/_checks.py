"""What the arguments of a product must look like, with an error for each way in which they do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import torch

BLOCK = 128
CPU_DTYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)


def check_product(
    op: str, operands: Sequence[torch.Tensor], c: torch.Tensor | None, *, nt: bool
) -> None:
    """Require operands, scales and result that fit together.

    Args:
        op: the function, as its user called it.
        operands: a (K x M), b (K x N), a_scale (K/128 x M), b_scale (K/128 x ⌈N/128⌉), or each the
            other way round if `nt`.
        c: M x N, or None.
        nt: which of the two forms it is.

    Raises:
        ValueError: a shape, dtype or device that does not fit.
    """
    a, b, a_scale, b_scale = operands
    for name, tensor in zip(("a", "b", "a_scale", "b_scale"), operands, strict=True):
        if tensor.dim() != 2:
            _fail(op, f"{name} must have two dimensions; found shape {_spell(tensor.shape)}")
    _check_dtypes(op, a, b)
    k_axis = 1 if nt else 0
    _check_k(op, a, b, k_axis, nt=nt)
    m, n, k = a.shape[1 - k_axis], b.shape[1 - k_axis], a.shape[k_axis]
    if k % BLOCK:
        _fail(op, f"K must be a multiple of {BLOCK}, the scale block; found {k}. Pad with zeros")
    if n % 8:
        _fail(op, f"N must be a multiple of 8, for rows of c in whole 16 bytes; found {n}")
    _check_scale(op, "a_scale", a_scale, m, k, nt=nt, what="K/128 and M")
    _check_scale(op, "b_scale", b_scale, -(-n // BLOCK), k, nt=nt, what="K/128 and ceil(N/128)")
    others = {"b": b, "a_scale": a_scale, "b_scale": b_scale}
    if c is not None:
        others["c"] = c
        if c.shape != (m, n):
            _fail(op, f"c must have shape {_spell((m, n))}; found {_spell(c.shape)}")
        if c.dtype != torch.bfloat16:
            _fail(op, f"c must be torch.bfloat16; found {c.dtype}")
    for name, tensor in others.items():
        if tensor.device != a.device:
            _fail(op, f"{name} must be on the device of a, {a.device}; found {tensor.device}")


def _check_dtypes(op: str, a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dtype != b.dtype:
        _fail(op, f"a and b must have one dtype; found {a.dtype} and {b.dtype}")
    if a.device.type == "cuda" and torch.version.hip is None:
        if a.dtype == torch.float8_e4m3fnuz:
            _fail(
                op,
                "a and b are torch.float8_e4m3fnuz, the form of AMD's gfx942;"
                " CUDA needs torch.float8_e4m3fn",
            )
        if a.dtype != torch.float8_e4m3fn:
            _fail(op, f"a and b must be torch.float8_e4m3fn on CUDA; found {a.dtype}")
    elif a.dtype not in CPU_DTYPES:
        _fail(
            op,
            f"a and b must be torch.float8_e4m3fn or torch.float8_e4m3fnuz; found {a.dtype}",
        )


def _check_k(op: str, a: torch.Tensor, b: torch.Tensor, k_axis: int, *, nt: bool) -> None:
    if a.shape[k_axis] == b.shape[k_axis]:
        return
    form = "a is M x K and b is N x K" if nt else "a is K x M and b is K x N"
    hint = ""
    for name, tensor, other in (("a", a, b), ("b", b, a)):
        if tensor.shape[1 - k_axis] == other.shape[k_axis]:
            hint = f". If its dimensions are the other way round, pass {name}.t()"
            break
    _fail(
        op,
        f"{form}, with one K; found shapes {_spell(a.shape)} and {_spell(b.shape)}{hint}",
    )


def _check_scale(
    op: str, name: str, scale: torch.Tensor, rows: int, k: int, *, nt: bool, what: str
) -> None:
    expected = (rows, k // BLOCK) if nt else (k // BLOCK, rows)
    if scale.shape != expected:
        hint = f". Pass {name}.t()" if scale.shape == expected[::-1] else ""
        _fail(
            op,
            f"{name} must have shape {_spell(expected)} ({what}); found {_spell(scale.shape)}{hint}",
        )
    if scale.dtype != torch.float32:
        _fail(op, f"{name} must be torch.float32; found {scale.dtype}")


def _fail(op: str, message: str) -> NoReturn:
    raise ValueError(f"{op}: {message}")


def _spell(shape: torch.Size | tuple[int, ...]) -> str:
    return str(tuple(shape))
