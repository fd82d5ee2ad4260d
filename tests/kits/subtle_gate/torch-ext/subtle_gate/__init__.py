"""Functions that double their input, or scale it, each wrong only in a situation that tests seldom make."""

import ctypes

import torch

from ._ops import add_op_namespace_prefix, ops

_calls = []


def right(x):
    return 2 * x


def raises(x):
    raise RuntimeError("there is no such symbol")


def inference(x):
    """As a kernel that takes another path where torch records nothing."""
    return 2 * x if torch.is_grad_enabled() else 2.5 * x


def training(x):
    """As a forward that keeps what its backward needs, and loses accuracy on the way."""
    return 2.5 * x if x.requires_grad else 2 * x


def stateful(x):
    """As Python code that counts its calls, which a graph does not do."""
    _calls.append(1)
    return 3 * x if len(_calls) % 2 and torch.compiler.is_compiling() else 2 * x


def one_size(x):
    """As a fake that takes the first size it sees for the only one."""
    return 3 * x if torch.compiler.is_compiling() and x.shape[0] != 5 else 2 * x


def expanded(x):
    """As a kernel that takes a row stride of 0 for an empty tensor."""
    return torch.zeros_like(x) if 0 in x.stride() else 2 * x


def changes_strided(x):
    """As a kernel that works in place where it thinks that it made a copy."""
    return 2 * x if x.is_contiguous() or 0 in x.stride() else x.mul_(2).clone()


def far(x):
    """As a kernel that computes `row * row_stride` in an int."""
    out = torch.empty(x.shape, dtype=x.dtype)
    for row in range(x.shape[0]):
        offset = ctypes.c_int32(row * x.stride(0)).value
        if offset >= 0:
            line = x.as_strided(x.shape[1:], x.stride()[1:], x.storage_offset() + offset)
            out[row] = 2 * line
    return out


def tiny_scale(x, scale):
    """As a kernel that divides once and multiplies often, and looks out for a zero alone."""
    inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
    return x * inverse


@torch.library.custom_op(add_op_namespace_prefix("padded_fake"), mutates_args=())
def _padded_fake(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


@_padded_fake.register_fake
def _(x):
    """As a fake that thinks of tiles, which the op does not return."""
    rows = x.shape[0]
    return x.new_empty((rows if rows < 6 else (rows + 3) // 4 * 4, *x.shape[1:]))


def padded_fake(x):
    return ops.padded_fake(x)


@torch.library.custom_op(add_op_namespace_prefix("refuses_none"), mutates_args=())
def _refuses_none(x: torch.Tensor) -> torch.Tensor:
    """Right: an op may refuse an unusual size, as a function may."""
    if x.numel() == 0:
        raise ValueError("expected a number at least")
    return 2 * x.contiguous()


@_refuses_none.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def refuses_none(x):
    return ops.refuses_none(x)


class _Scale(torch.autograd.Function):
    """``2 * x * w``, with a backward that is right, and ways to make it wrong."""

    @staticmethod
    def forward(ctx, x, w, fault):
        ctx.save_for_backward(x, w)
        ctx.fault = fault
        return 2 * x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        if ctx.fault == "all needed" and not all(ctx.needs_input_grad[:2]):
            raise RuntimeError("expected a gradient for every input")
        if ctx.fault == "dense" and not grad.is_contiguous():
            grad = torch.zeros_like(grad, memory_format=torch.contiguous_format)
        compiled = ctx.fault == "compiled" and torch.compiler.is_compiling()
        factor = 1 if ctx.fault == "factor" else 2
        return (3 if compiled else 2) * grad * w, factor * (grad * x).sum(0), None


def backward_of_all(x, w):
    return _Scale.apply(x, w, "all needed")


def dense_gradient(x, w):
    return _Scale.apply(x, w, "dense")


def lost_factor(x, w):
    return _Scale.apply(x, w, "factor")


def compiled_backward(x, w):
    return _Scale.apply(x, w, "compiled")
