"""Launching the device kernels: what can be decided once is decided once.

For few rows the host takes longer than the GPU. So a plan holds, for every kind of call,
the compiled kernel and the arguments that never change, and a call is left with an
allocation and a launch. Inputs that are not dense, or not aligned to 16 bytes, go through
Triton's own launch, which looks at them anew.
"""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch

from ._checks import check_norm

_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
_MAX_HIDDEN = 32768  # in one program's registers
# Elements up to which a call is short, and from which it is long: other forms are best then.
_SHORT = 1 << 22
_LONG = 1 << 25


def _find_triton() -> str | None:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


# Triton 3.6 wraps the C function that launches in Python that allocates scratch memory; a kernel that
# needs none can call it directly. Other versions are asked through their public door, which takes
# several times as long.
_VERSION = _find_triton()
HAS_TRITON = _VERSION is not None
LAUNCHES_DIRECTLY = _VERSION is not None and _VERSION.startswith("3.6.")

_empty_like = torch.empty_like
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device = getattr(torch._C, "_cuda_getDevice", None)


class Form(NamedTuple):
    """How a kernel is laid over its rows."""

    block_hidden: int
    block_rows: int
    warps: int
    pdl: bool


class ForwardPlan:
    """One kind of forward call on one device; compiles at the first, then only launches."""

    __slots__ = ("constants", "device", "form", "head", "hidden", "is_rms", "launch", "sum_dtype")

    def __init__(
        self, hidden: int, device: int, is_rms: bool, sum_dtype: torch.dtype | None, form: Form
    ) -> None:
        self.hidden = hidden
        self.device = device
        self.is_rms = is_rms
        self.sum_dtype = sum_dtype
        self.form = form
        self.launch: Callable[..., object] | None = None
        self.head: tuple[Any, ...] = ()
        self.constants: tuple[Any, ...] = ()

    def norm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
    ) -> torch.Tensor:
        """Return the norm of the rows of `x`, dense and in its dtype."""
        launch = self.launch
        if launch is None or not x.is_contiguous() or _current_device() != self.device:
            return self._launch_any(x, None, weight, bias, eps)[0]
        y = _empty_like(x)
        x_ptr = x.data_ptr()
        y_ptr = y.data_ptr()
        weight_ptr = bias_ptr = None
        seen = x_ptr | y_ptr
        if weight is not None:
            seen |= (weight_ptr := weight.data_ptr())
            if not weight.is_contiguous():
                seen |= 1
        if bias is not None:
            seen |= (bias_ptr := bias.data_ptr())
            if not bias.is_contiguous():
                seen |= 1
        if seen & 15:
            return self._launch_any(x, None, weight, bias, eps)[0]
        hidden = self.hidden
        rows = x.numel() // hidden
        block_rows = self.form.block_rows
        launch(
            (rows + block_rows - 1) // block_rows,
            1,
            1,
            _raw_stream(self.device),
            *self.head,
            x_ptr,
            None,
            weight_ptr,
            bias_ptr,
            y_ptr,
            None,
            rows,
            hidden,
            hidden,
            eps,
            *self.constants,
        )
        return y

    def add_norm(
        self,
        x: torch.Tensor,
        residual: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the norm of ``x + residual`` and the sum, dense and in `sum_dtype`."""
        launch = self.launch
        inputs = (x, residual, weight, bias)
        if launch is None or _current_device() != self.device or not _all_contiguous(inputs):
            return self._launch_any(x, residual, weight, bias, eps)
        y = _empty_like(x)
        total = torch.empty_like(residual, dtype=self.sum_dtype)
        pointers = [None if t is None else t.data_ptr() for t in (*inputs, y, total)]
        if any(p is not None and p & 15 for p in pointers):
            return self._launch_any(x, residual, weight, bias, eps)
        hidden = self.hidden
        rows = x.numel() // hidden
        grid = -(-rows // self.form.block_rows)
        stream = _raw_stream(self.device)
        strides = (rows, hidden, hidden, eps)
        launch(grid, 1, 1, stream, *self.head, *pointers, *strides, *self.constants)
        return y, total

    def _launch_any(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kernels = _load_kernels()
        hidden, form = self.hidden, self.form
        rows = x.numel() // hidden
        x_rows = _as_rows(x, hidden)
        residual_rows = None if residual is None else _as_rows(residual, hidden)
        weight = None if weight is None else weight.contiguous()
        bias = None if bias is None else bias.contiguous()
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        total = torch.empty(
            (0,) if residual is None else x.shape, dtype=self.sum_dtype or x.dtype, device=x.device
        )
        tensors = (x_rows, residual_rows, weight, bias, y, None if residual is None else total)
        constants = (
            *(hidden, form.block_hidden, form.block_rows, self.is_rms),
            *(residual is not None, weight is not None, bias is not None, form.pdl),
        )
        if rows == 0:
            return y, total
        with torch.cuda.device(self.device):
            compiled = kernels.norm_forward_kernel[(-(-rows // form.block_rows),)](
                *tensors,
                rows,
                x_rows.stride(0),
                hidden if residual_rows is None else residual_rows.stride(0),
                float(eps),
                *constants,
                num_warps=form.warps,
                **_pdl_option(form.pdl),
            )
        dense = (x, y) if residual is None else (x, residual, y, total)
        if _all_contiguous(dense) and _all_aligned(tensors):
            self.constants = constants
            self.launch, self.head = _find_launcher(compiled)
        return y, total


_plans: dict[tuple[Any, ...], ForwardPlan | None] = {}


def find_plan(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    is_rms: bool,
    sum_dtype: torch.dtype | None,
) -> ForwardPlan | None:
    """Return how to run such a call, or None where there is no Triton kernel for it.

    Raises:
        ValueError: the tensors do not fit each other.
    """
    shape = x.shape
    key = (
        is_rms,
        x.dtype,
        shape[-1] if shape else None,
        x.get_device(),
        (count := x.numel()) >= _LONG,
        count <= _SHORT,
        None if weight is None else (weight.dtype, weight.shape, weight.get_device()),
    )
    if bias is not None or residual is not None:
        key = (*key, *_describe_rest(x, bias, residual), sum_dtype)
    try:
        return _plans[key]
    except KeyError:
        check_norm(x, weight, bias, residual)
        plan = _make_plan(x, (residual, weight, bias), is_rms, sum_dtype)
        _plans[key] = plan
        return plan


def backward(
    h: torch.Tensor,
    weight: torch.Tensor | None,
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
    eps: float,
    *,
    is_rms: bool,
    dweight_dtype: torch.dtype | None,
    dbias_dtype: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of `h`, which was normalised, and of weight and bias if wanted.

    A program takes every n-th row and keeps its share of the sums over the rows in
    registers; a second kernel adds the shares, so that the order is always the same.
    """
    hidden, device = h.shape[-1], h.get_device()
    rows = h.numel() // hidden
    block = _next_power_of_2(hidden)
    warps = min(32, max(4, block // 512))
    programs = min(rows, _processor_count(device) * max(1, 16 // warps))
    h_rows, dy_rows = _as_rows(h, hidden), _as_rows(dy, hidden)
    dsum_rows = None if dsum is None else _as_rows(dsum, hidden)
    pdl = _has_pdl(device)
    shares = {"dtype": torch.float32, "device": h.device}
    dweight_shares = dbias_shares = None
    if dweight_dtype is not None:
        dweight_shares = torch.empty((programs, hidden), **shares)
    if dbias_dtype is not None:
        dbias_shares = torch.empty((programs, hidden), **shares)
    dh = torch.empty(h.shape, dtype=h.dtype, device=h.device)
    weight = None if weight is None else weight.contiguous()
    if programs:
        strides = (
            h_rows.stride(0),
            dy_rows.stride(0),
            hidden if dsum_rows is None else dsum_rows.stride(0),
        )
        _run(
            "norm_backward_kernel",
            programs,
            (h_rows, weight, dy_rows, dsum_rows, dh, dweight_shares, dbias_shares),
            (rows, *strides, float(eps)),
            (
                *(hidden, block, is_rms, weight is not None, dsum is not None),
                *(dweight_dtype is not None, dbias_dtype is not None, pdl),
            ),
            warps=warps,
            pdl=pdl,
            is_dense=strides == (hidden, hidden, hidden),
        )
    dweight = _sum_columns(dweight_shares, dweight_dtype, pdl)
    dbias = _sum_columns(dbias_shares, dbias_dtype, pdl)
    return dh, dweight, dbias


def _sum_columns(
    shares: torch.Tensor | None, dtype: torch.dtype | None, pdl: bool
) -> torch.Tensor | None:
    if shares is None:
        return None
    count, hidden = shares.shape
    total = torch.empty((hidden,), dtype=dtype, device=shares.device)
    _run(
        *("column_sum_kernel", -(-hidden // 32), (shares, total), (count,), (hidden, 32, 32, pdl)),
        warps=4,
        pdl=pdl,
        is_dense=True,
    )
    return total


_launchers: dict[tuple[Any, ...], tuple[Callable[..., object], tuple[Any, ...]]] = {}


def _run(
    name: str,
    grid: int,
    tensors: tuple[torch.Tensor | None, ...],
    numbers: tuple[float, ...],
    constants: tuple[Any, ...],
    *,
    warps: int,
    pdl: bool,
    is_dense: bool,
) -> None:
    """Launch a device kernel; dense and aligned tensors without Triton's own look at them."""
    first = tensors[0]
    assert first is not None
    device = first.get_device()
    pointers = [None if t is None else t.data_ptr() for t in tensors]
    key = None
    if is_dense and not any(p is not None and p & 15 for p in pointers):
        dtypes = tuple(None if t is None else t.dtype for t in tensors)
        key = (name, device, warps, dtypes, constants)
        if key in _launchers and _current_device() == device:
            launch, head = _launchers[key]
            launch(grid, 1, 1, _raw_stream(device), *head, *pointers, *numbers, *constants)
            return
    with torch.cuda.device(device):
        compiled = getattr(_load_kernels(), name)[(grid,)](
            *(*tensors, *numbers, *constants), num_warps=warps, **_pdl_option(pdl)
        )
    if key is not None:
        _launchers[key] = _find_launcher(compiled)


def _describe_rest(
    x: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None
) -> tuple[Any, ...]:
    return (
        None if bias is None else (bias.dtype, bias.shape, bias.get_device()),
        None
        if residual is None
        else (residual.dtype, residual.shape == x.shape, residual.get_device()),
    )


def _make_plan(
    x: torch.Tensor,
    others: tuple[torch.Tensor | None, ...],
    is_rms: bool,
    sum_dtype: torch.dtype | None,
) -> ForwardPlan | None:
    dtypes = {x.dtype, *(t.dtype for t in others if t is not None), sum_dtype or x.dtype}
    hidden, device = x.shape[-1], x.get_device()
    if not dtypes <= _DTYPES or not 0 < hidden <= _MAX_HIDDEN:
        return None
    form = _choose_form(hidden, x.numel(), _has_pdl(device))
    return ForwardPlan(hidden, device, is_rms, sum_dtype, form)


def _choose_form(hidden: int, count: int, has_pdl: bool) -> Form:
    """Measured on an H200: see docs/kernels/triton-layer-norm.md."""
    block = _next_power_of_2(hidden)
    if block > 16384:
        return Form(block, 1, 32, has_pdl)
    if count >= _LONG:
        if block == hidden and block >= 4096:
            return Form(block, 16384 // block, 16, False)
        return Form(block, 1, min(16, max(4, block // 1024)), False)
    if count <= _SHORT and block >= 4096:
        return Form(block, 1, 16, has_pdl)
    return Form(block, 1, min(16, max(4, block // 512)), has_pdl)


def _find_launcher(compiled: Any) -> tuple[Callable[..., object], tuple[Any, ...]]:
    """Return what launches a compiled kernel, and its arguments after grid and stream."""
    run = compiled.run
    if LAUNCHES_DIRECTLY and hasattr(run, "launch"):
        scratch = run.global_scratch_size + run.profile_scratch_size
        if scratch == 0:
            options = (run.launch_cooperative_grid, run.launch_pdl)
            nothing = (None, None, None)
            return run.launch, (
                *(compiled.function, *options, None, None),
                *(compiled.packed_metadata, *nothing),
            )

    def launch(x: int, y: int, z: int, stream: int, *arguments: object) -> None:
        compiled[(x, y, z)](*arguments, stream=stream)

    return launch, ()


_kernels: list[ModuleType] = []
_processors: dict[int, tuple[int, bool]] = {}


def _load_kernels() -> ModuleType:
    if not _kernels:
        from . import _kernels as module

        _kernels.append(module)
    return _kernels[0]


def _look_at_device(device: int) -> tuple[int, bool]:
    if device not in _processors:
        properties = torch.cuda.get_device_properties(device)
        pdl = torch.version.hip is None and properties.major >= 9
        _processors[device] = (properties.multi_processor_count, pdl)
    return _processors[device]


def _processor_count(device: int) -> int:
    return _look_at_device(device)[0]


def _has_pdl(device: int) -> bool:
    return _look_at_device(device)[1]


def _pdl_option(pdl: bool) -> dict[str, bool]:
    return {"launch_pdl": True} if pdl else {}  # other backends do not know the option


def _as_rows(x: torch.Tensor, hidden: int) -> torch.Tensor:
    rows = x.reshape(-1, hidden)
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _all_contiguous(tensors: tuple[torch.Tensor | None, ...]) -> bool:
    return all(t is None or t.is_contiguous() for t in tensors)


def _all_aligned(tensors: tuple[torch.Tensor | None, ...]) -> bool:
    return not any(t is not None and t.data_ptr() & 15 for t in tensors)


def _next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()
