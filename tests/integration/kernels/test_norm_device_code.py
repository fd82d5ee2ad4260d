"""The device code of triton-layer-norm's compiled kernels, run on the CPU: every form, without a GPU.

A fiber stands for each thread of a block (norm_on_host.h). Budget: one minute on two cores.
"""

# ruff: noqa: PLR0917  (fixtures and parameters)
from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
import torch
from lacking import give_up

from kernel_builder.errors import ToolchainUnavailableError
from kernel_builder.settings import read_settings
from kernel_builder.toolchain.cuda import get_cuda

HERE = Path(__file__).parent
PROJECT = HERE.parents[2] / "kernels-community" / "triton-layer-norm"
EPS = 1e-5
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 4.5e-3, torch.float16: 6e-4}
# Lanes of a warp with some idle, warps with some idle, two packs, a common length, four and two in the
# backward, and none.
HIDDEN = [8, 24, 1000, 2056, 2048, 6152, 7]
CASES = [(hidden, torch.float16) for hidden in HIDDEN]
CASES += [(hidden, dtype) for hidden in (24, 1000) for dtype in (torch.float32, torch.bfloat16)]
DYNAMIC = "extern __shared__ __align__(16) float of_block[];"
# What the launches take, and what chooses their forms: five multiprocessors, no launch ahead.
ENTRIES = r"""
using namespace layer_norm::cuda;
constexpr Device kDevice = {5, false};

extern "C" int forward(const ForwardCall& call) {
  return launch_forward(call, choose_forward_form(call, kDevice), nullptr);
}
extern "C" int backward(BackwardCall& call, float* scratch) {
  const Form form = choose_backward_form(call, kDevice);
  const int sharers = count_sharers(call, form, kDevice);
  call.shares = scratch;
  call.row_factors = scratch + 2 * sharers * call.hidden;
  return launch_backward(call, form, sharers, nullptr);
}
"""


class ForwardCall(ctypes.Structure):
    """ForwardCall of norm_calls.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "residual", "weight", "bias", "y", "sum")),
        ("rows", ctypes.c_int64),
        ("hidden", ctypes.c_int),
        *((name, ctypes.c_int64) for name in ("x_stride", "residual_stride")),
        ("eps", ctypes.c_float),
        ("is_rms", ctypes.c_bool),
        ("element", ctypes.c_int),
        *((f"has_wide_{name}", ctypes.c_bool) for name in ("parameters", "residual", "sum")),
    ]


class BackwardCall(ctypes.Structure):
    """BackwardCall of norm_calls.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("h", "weight", "dy", "dsum", "dh", "dweight")),
        *((name, ctypes.c_void_p) for name in ("dbias", "shares", "row_factors")),
        ("rows", ctypes.c_int64),
        ("hidden", ctypes.c_int),
        *((name, ctypes.c_int64) for name in ("h_stride", "dy_stride", "dsum_stride")),
        ("eps", ctypes.c_float),
        ("is_rms", ctypes.c_bool),
        ("element", ctypes.c_int),
        ("has_wide_parameters", ctypes.c_bool),
    ]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    try:
        cuda = get_cuda(read_settings(os.environ))
    except ToolchainUnavailableError as err:
        give_up(err)
    folder = tmp_path_factory.mktemp("norms")
    files = [folder / "entries.cpp"]
    files[0].write_text('#include "norm_calls.h"\n' + ENTRIES)
    for name in ("norm_forward", "norm_backward"):
        text = (PROJECT / "csrc" / "cuda" / f"{name}.cu").read_text()
        assert text.count(DYNAMIC) == (name == "norm_backward")
        text = text.replace(DYNAMIC, "float* of_block = on_host::dynamic;")
        files.append(folder / f"{name}.cpp")
        files[-1].write_text(f'#include "norm_on_host.h"\n{text}')
    command = ["g++", "-std=c++20", "-O1", "-w", "-shared", "-fPIC"]
    command.append("-ftrivial-auto-var-init=pattern")  # what was never written is NaN in float16
    command += [f"-I{HERE}", f"-I{PROJECT / 'csrc' / 'cuda'}", f"-isystem{cuda.include}"]
    library = folder / "norms.so"
    done = subprocess.run(
        [*command, "-o", library, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return ctypes.CDLL(str(library))


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    place = PROJECT / "torch-ext" / "triton_layer_norm" / "reference.py"
    spec = importlib.util.spec_from_file_location("norm_reference", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def draw(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape, dtype=torch.float64) + 0.3).to(dtype)


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.full(shape, float("nan"), dtype=dtype)


def assert_near(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    error = (found.double() - expected).norm()
    assert error <= TOLERANCE[dtype] * expected.norm() + 1e-7, error / expected.norm()


def strided(rows: int, hidden: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows that lie apart."""
    return draw(rows, hidden + 8, dtype=dtype)[:, :hidden]


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("adds", [False, True], ids=["", "residual"])
@pytest.mark.parametrize(("hidden", "dtype"), CASES, ids=str)
def test_forward(
    code: ctypes.CDLL,
    reference: ModuleType,
    hidden: int,
    dtype: torch.dtype,
    adds: bool,
    is_rms: bool,
) -> None:
    torch.manual_seed(hidden)
    wide = adds and dtype == torch.bfloat16
    rows = 19 if hidden < 256 else 1
    x, residual = strided(rows, hidden, dtype), draw(rows, hidden, dtype=dtype)
    weight, bias = (draw(hidden, dtype=torch.float32 if wide else dtype) for _ in range(2))
    y = poisoned(rows, hidden, dtype=dtype)
    total = poisoned(rows, hidden, dtype=torch.float32 if wide else dtype)
    call = ForwardCall(
        *(x.data_ptr(), residual.data_ptr() if adds else None, weight.data_ptr()),
        *(bias.data_ptr(), y.data_ptr(), total.data_ptr() if adds else None),
        *(rows, hidden, x.stride(0), hidden, EPS, is_rms, ELEMENTS[dtype], wide, False, wide),
    )
    assert code.forward(ctypes.byref(call)) == 0
    h = x.double() + residual.double() if adds else x.double()
    assert_near(y, reference.norm(h, weight.double(), bias.double(), EPS, is_rms=is_rms), dtype)
    if adds:
        assert_near(total, h, total.dtype)


@pytest.mark.parametrize(("is_rms", "has_bias"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("mean", [0.0, 300.0], ids=str)
@pytest.mark.parametrize("hidden", [2048, 4096, 8192])
def test_forward_of_common_lengths(
    code: ctypes.CDLL,
    reference: ModuleType,
    hidden: int,
    mean: float,
    is_rms: bool,
    has_bias: bool,
) -> None:
    """Also of rows that lie far from zero, where nothing may cancel."""
    torch.manual_seed(hidden)
    rows, dtype = 2, torch.float16
    x = (torch.randn(rows, hidden) * 4 + mean).to(dtype)
    weight, bias = (draw(hidden, dtype=dtype) for _ in range(2))
    y = poisoned(rows, hidden, dtype=dtype)
    call = ForwardCall(
        *(x.data_ptr(), None, weight.data_ptr(), bias.data_ptr() if has_bias else None),
        *(y.data_ptr(), None, rows, hidden, hidden, 0, EPS, is_rms, ELEMENTS[dtype], False),
        *(False, False),
    )
    assert code.forward(ctypes.byref(call)) == 0
    wide_bias = bias.double() if has_bias else None
    assert_near(
        y, reference.norm(x.double(), weight.double(), wide_bias, EPS, is_rms=is_rms), dtype
    )


@pytest.mark.parametrize("first", [-1000.0, 0.0, 3e4], ids=str)
@pytest.mark.parametrize("mean", [0.0, 1e3], ids=str)
@pytest.mark.parametrize("hidden", [24, 1000])
def test_backward_of_rows_that_lie_far_from_zero_or_begin_far_from_the_rest(
    code: ctypes.CDLL, reference: ModuleType, hidden: int, mean: float, first: float
) -> None:
    """The mean is found by one reading, beside the variance: nothing may cancel."""
    torch.manual_seed(hidden)
    rows = 5
    h, dy = (torch.randn(rows, hidden) + mean, torch.randn(rows, hidden))
    h[:, 0] += first
    weight = torch.rand(hidden) + 0.5
    dh, dweight, dbias = (poisoned(*s, dtype=h.dtype) for s in (h.shape, (hidden,), (hidden,)))
    scratch = torch.full((2 * 1024 * hidden,), float("nan"))
    call = BackwardCall(
        *(h.data_ptr(), weight.data_ptr(), dy.data_ptr(), None, dh.data_ptr()),
        *(dweight.data_ptr(), dbias.data_ptr(), None, None, rows, hidden),
        *(hidden, hidden, 0, EPS, False, ELEMENTS[h.dtype], False),
    )
    assert code.backward(ctypes.byref(call), ctypes.c_void_p(scratch.data_ptr())) == 0
    exact = reference.norm_backward(*(t.double() for t in (h, weight, dy)), None, EPS, is_rms=False)
    for found, true in zip((dh, dweight, dbias), exact, strict=True):
        error = (found.double() - true).norm() / true.norm()
        # The rows themselves are rounded: by how much of their spread, their mean says.
        assert error <= 1e-5 + 1e-7 * mean, error


@pytest.mark.parametrize(("is_rms", "has_bias"), [(True, False), (True, True), (False, True)])
@pytest.mark.parametrize(("hidden", "dtype"), CASES, ids=str)
def test_backward(
    code: ctypes.CDLL,
    reference: ModuleType,
    hidden: int,
    dtype: torch.dtype,
    has_bias: bool,
    is_rms: bool,
) -> None:
    torch.manual_seed(hidden)
    rows = 400 if hidden == 24 else 7  # more than the blocks take at once
    h, dy, dsum = (strided(rows, hidden, dtype) for _ in range(3))
    weight = draw(hidden, dtype=dtype)
    dh = poisoned(rows, hidden, dtype=dtype)
    dweight, dbias = (poisoned(hidden, dtype=dtype) for _ in range(2))
    scratch = torch.full((2 * 1024 * hidden + 2 * rows,), float("nan"))
    call = BackwardCall(
        *(h.data_ptr(), weight.data_ptr(), dy.data_ptr(), dsum.data_ptr(), dh.data_ptr()),
        *(dweight.data_ptr(), dbias.data_ptr() if has_bias else None, None, None, rows, hidden),
        *(h.stride(0), dy.stride(0), dsum.stride(0), EPS, is_rms, ELEMENTS[dtype], False),
    )
    assert code.backward(ctypes.byref(call), ctypes.c_void_p(scratch.data_ptr())) == 0
    exact = reference.norm_backward(
        *(h.double(), weight.double(), dy.double(), dsum.double(), EPS), is_rms=is_rms
    )
    for found, true in zip((dh, dweight, dbias)[: 2 + has_bias], exact, strict=False):
        assert_near(found, true, dtype)
