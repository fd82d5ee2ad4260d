"""The device kernels, in Triton: one forward and one backward for both norms, and a column sum.

A program holds whole rows in registers, so memory is read once and written once. All
arithmetic is in float32. With PDL a kernel may be put on the multiprocessors while its
predecessor still runs (programmatic dependent launch, compute capability 9.0); it reads
and writes nothing before `gdc_wait` says that the predecessor's results are there.
"""

# ruff: noqa: PLR0917, SIM108  (arguments by position; Triton takes no conditional expression here)
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def load_row(row_ptr, columns, HIDDEN: tl.constexpr, BLOCK_HIDDEN: tl.constexpr):
    if HIDDEN == BLOCK_HIDDEN:
        values = tl.load(row_ptr + columns)
    else:
        values = tl.load(row_ptr + columns, mask=columns < HIDDEN, other=0.0)
    return values


@triton.jit
def store_row(row_ptr, columns, values, HIDDEN: tl.constexpr, BLOCK_HIDDEN: tl.constexpr):
    values = values.to(row_ptr.dtype.element_ty)
    if HIDDEN == BLOCK_HIDDEN:
        tl.store(row_ptr + columns, values)
    else:
        tl.store(row_ptr + columns, values, mask=columns < HIDDEN)


@triton.jit
def normalize(
    h, columns, eps, HIDDEN: tl.constexpr, BLOCK_HIDDEN: tl.constexpr, IS_RMS: tl.constexpr
):
    """Return the row `h` normalised, and the factor that it was scaled by."""
    if not IS_RMS:
        h = h - tl.sum(h, axis=0) / HIDDEN
        if HIDDEN != BLOCK_HIDDEN:
            h = tl.where(columns < HIDDEN, h, 0.0)
    scale = tl.rsqrt(tl.sum(h * h, axis=0) / HIDDEN + eps)
    return h * scale, scale


@triton.jit
def load_tile(tile_ptr, mask, MASKED: tl.constexpr):
    if MASKED:
        values = tl.load(tile_ptr, mask=mask, other=0.0)
    else:
        values = tl.load(tile_ptr)
    return values


@triton.jit
def store_tile(tile_ptr, values, mask, MASKED: tl.constexpr):
    values = values.to(tile_ptr.dtype.element_ty)
    if MASKED:
        tl.store(tile_ptr, values, mask=mask)
    else:
        tl.store(tile_ptr, values)


@triton.jit(do_not_specialize=["rows"])
def norm_forward_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    sum_ptr,
    rows,
    x_row_stride,
    residual_row_stride,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    IS_RMS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Fill BLOCK_ROWS rows of `y` with ``norm(x + residual) * weight + bias``, and those of `sum`.

    One row is the shape for few rows; more make the programs fewer and their loads longer.
    """
    MASKED: tl.constexpr = HIDDEN != BLOCK_HIDDEN or BLOCK_ROWS > 1
    columns = tl.arange(0, BLOCK_HIDDEN)[None, :]
    row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)[:, None]
    inside = columns < HIDDEN
    mask = inside & (row < rows)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    h = load_tile(x_ptr + row * x_row_stride + columns, mask, MASKED).to(tl.float32)
    if HAS_RESIDUAL:
        h += load_tile(residual_ptr + row * residual_row_stride + columns, mask, MASKED).to(
            tl.float32
        )
    if HAS_WEIGHT:
        weight = load_tile(weight_ptr + columns, inside, HIDDEN != BLOCK_HIDDEN)
    if HAS_BIAS:
        bias = load_tile(bias_ptr + columns, inside, HIDDEN != BLOCK_HIDDEN)
    if HAS_RESIDUAL:
        store_tile(sum_ptr + row * HIDDEN + columns, h, mask, MASKED)
    if not IS_RMS:
        h -= tl.sum(h, axis=1, keep_dims=True) / HIDDEN
        if HIDDEN != BLOCK_HIDDEN:
            h = tl.where(inside, h, 0.0)
    y = h * tl.rsqrt(tl.sum(h * h, axis=1, keep_dims=True) / HIDDEN + eps)
    if HAS_WEIGHT:
        y *= weight.to(tl.float32)
    if HAS_BIAS:
        y += bias.to(tl.float32)
    store_tile(y_ptr + row * HIDDEN + columns, y, mask, MASKED)


@triton.jit(do_not_specialize=["rows"])
def norm_backward_kernel(
    h_ptr,
    weight_ptr,
    dy_ptr,
    dsum_ptr,
    dh_ptr,
    partial_dweight_ptr,
    partial_dbias_ptr,
    rows,
    h_row_stride,
    dy_row_stride,
    dsum_row_stride,
    eps,
    HIDDEN: tl.constexpr,
    BLOCK_HIDDEN: tl.constexpr,
    IS_RMS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_DSUM: tl.constexpr,
    NEEDS_DWEIGHT: tl.constexpr,
    NEEDS_DBIAS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Fill every n-th row of `dh`, n being the number of programs, and a row of each partial sum.

    With x̂ the normalised row, s its scale and g = dy * weight:
    ``dh = s (g - x̂ mean(g x̂) - mean(g)) + dsum``, without the last mean for RMSNorm;
    ``dweight = Σ dy x̂`` and ``dbias = Σ dy`` over the rows.
    """
    first = tl.program_id(0)
    columns = tl.arange(0, BLOCK_HIDDEN)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    if HAS_WEIGHT:
        weight = load_row(weight_ptr, columns, HIDDEN, BLOCK_HIDDEN).to(tl.float32)
    dweight = tl.zeros((BLOCK_HIDDEN,), tl.float32)
    dbias = tl.zeros((BLOCK_HIDDEN,), tl.float32)
    for row in range(first, rows, tl.num_programs(0)):
        at = row.to(tl.int64)
        h = load_row(h_ptr + at * h_row_stride, columns, HIDDEN, BLOCK_HIDDEN).to(tl.float32)
        dy = load_row(dy_ptr + at * dy_row_stride, columns, HIDDEN, BLOCK_HIDDEN).to(tl.float32)
        normal, scale = normalize(h, columns, eps, HIDDEN, BLOCK_HIDDEN, IS_RMS)
        if NEEDS_DWEIGHT:
            dweight += dy * normal
        if NEEDS_DBIAS:
            dbias += dy
        if HAS_WEIGHT:
            dy *= weight
        dh = dy - normal * (tl.sum(dy * normal, axis=0) / HIDDEN)
        if not IS_RMS:
            dh -= tl.sum(dy, axis=0) / HIDDEN
        dh *= scale
        if HAS_DSUM:
            dh += load_row(dsum_ptr + at * dsum_row_stride, columns, HIDDEN, BLOCK_HIDDEN).to(
                tl.float32
            )
        store_row(dh_ptr + at * HIDDEN, columns, dh, HIDDEN, BLOCK_HIDDEN)
    out = first.to(tl.int64) * HIDDEN
    if NEEDS_DWEIGHT:
        store_row(partial_dweight_ptr + out, columns, dweight, HIDDEN, BLOCK_HIDDEN)
    if NEEDS_DBIAS:
        store_row(partial_dbias_ptr + out, columns, dbias, HIDDEN, BLOCK_HIDDEN)


@triton.jit(do_not_specialize=["rows"])
def column_sum_kernel(
    partial_ptr,
    out_ptr,
    rows,
    HIDDEN: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    PDL: tl.constexpr,
):
    """Fill some columns of `out` with the sums of those columns of `partial` (rows, HIDDEN)."""
    columns = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for start in range(0, rows, BLOCK_ROWS):
        at = start + tl.arange(0, BLOCK_ROWS)
        mask = (at < rows)[:, None] & (columns < HIDDEN)[None, :]
        total += tl.load(
            partial_ptr + at.to(tl.int64)[:, None] * HIDDEN + columns[None, :], mask=mask, other=0.0
        )
    result = tl.sum(total, axis=0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + columns, result, mask=columns < HIDDEN)
