"""What each function does where autograd records, and where it does not.

A call on a small tensor takes as long as Python and torch need to reach the op, so nothing is done here
that the op does itself, and everything that does not change from call to call is looked up once, by
the functions that make the others: `fills`, `filler`, `activator` and `forward_of`.
"""

# ruff: noqa: A002  (`input` is torch's own name for it)
from __future__ import annotations

from collections.abc import Callable, Set
from functools import cache, partial, wraps
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import is_grad_enabled, nn
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling

from . import gradients, reference
from ._checks import DTYPES, check_input, check_no_tangent, check_output, is_gated
from ._ops import add_op_namespace_prefix, load_per_torch, ops

# Whether values on a GPU record themselves, at every size: csrc/node/activation_node.cpp, loaded here.
has_node: bool = load_per_torch()

# What tells the level of forward mode, below 0 where there is none.
_forward_mode: Any = (
    forward_ad if hasattr(forward_ad, "_current_level") else SimpleNamespace(_current_level=-1)
)

Fill = Callable[..., None]
Declared = TypeVar("Declared", bound=Fill)
Activate = Callable[..., torch.Tensor]
Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]

# Elsewhere a node of autograd's graph is in Python, and up to so many elements that costs the host more than the
# kernels save the device.
MOST_RECORDED_BY_TORCH = 1 << 25
# There torch's own ops are recorded, whose nodes are in C++: which, and the dtypes in which they have right
# slopes far out. gelu's tanh form has NaN beyond 10^19.
_OF_TORCH: dict[str, tuple[Activate, Set[torch.dtype]]] = {
    "gelu": (F.gelu, frozenset(DTYPES)),
    "gelu_tanh": (partial(F.gelu, approximate="tanh"), frozenset({torch.float16})),
    "silu": (torch._C._nn.silu, frozenset(DTYPES)),  # F.silu without its frame
}


def _one_name(op: str) -> str:
    """The name that stands for the three of one function where a name is not the caller's."""
    return "gelu_tanh" if op in ("gelu_fast", "gelu_new") else op


def _overload(name: str) -> Any:
    """The overload itself: torch would look for it again in every call."""
    return getattr(ops, name).default


def _direct(overload: Any) -> Callable[..., Any]:
    """What torch's own wrapper in Python calls and does no more than that."""
    call: Callable[..., Any] = getattr(overload, "_op", overload)
    return call


# Under a transform of torch.func, what torch records has more rules than what we do.
_transforms_active = torch._C._are_functorch_transforms_active

# What torch.autograd.graph.increment_version calls once it has asked whether it got a tensor or several.
_increment_version = getattr(torch._C, "_increment_version", increment_version)


def fills(function: Declared) -> Declared:
    """Put the op of that name, ``(out, input)``, in the place of a function that only declares it."""
    return cast("Declared", wraps(function)(filler(function.__name__)))


def filler(op: str) -> Fill:
    """Make the function ``fill(out, input, *options)`` that fills `out` with what `op` makes of `input`.

    A gradient flows through `out` if `input` wants one, at the cost of a copy. `fill` raises ValueError
    where `out` or `input` is not as `op` needs it.
    """
    overload, activate = _overload(op), activator(op)
    call = _direct(overload)

    def fill(out: torch.Tensor, input: torch.Tensor, *options: float) -> None:
        if _forward_mode._current_level >= 0:
            check_no_tangent(op, input)
        if is_grad_enabled() and (input.requires_grad or out.requires_grad):
            check_output(op, out, input)
            out.copy_(activate(input, *options))
            return
        if is_dynamo_compiling():
            overload(out, input, *options)
            return
        # The op itself refuses what is wrong. Only then it is looked at here, to say it better: to
        # ask tensors for their shapes from Python takes as long as the rest of a call.
        try:
            if options:
                call(out, input, *options)
            else:  # to unpack what is empty takes 0.1 µs
                call(out, input)
        except RuntimeError:
            check_output(op, out, input)
            raise
        # So that a backward that still needs what `out` held before fails instead of using this.
        _increment_version((out,))

    return fill


def by_kernel(x: torch.Tensor) -> bool:
    """Whether the kernel is recorded where torch has an op of its own."""
    return x.numel() > MOST_RECORDED_BY_TORCH and x.is_cuda


@cache
def recorded(op: str) -> Activate:
    """Make the function ``record(x, *options)``: what `op` makes of `x` where autograd records, but not the op itself.

    `record` raises ValueError where `x` is not as `op` needs it.
    """
    name = _one_name(op)
    recorder = _make_recorder(name)
    # What its `apply` calls once it knows that no transform of torch.func is active.
    record_directly = super(torch.autograd.Function, recorder).apply
    of_torch, dtypes_of_torch = _OF_TORCH.get(name, (record_directly, frozenset()))

    def record(x: torch.Tensor, *options: float) -> torch.Tensor:
        if _forward_mode._current_level >= 0:
            check_no_tangent(op, x)
        try:
            if is_dynamo_compiling():
                value: torch.Tensor = recorder.apply(x, *options)
            elif x.dtype in dtypes_of_torch and (_transforms_active() or not by_kernel(x)):
                value = of_torch(x)
            elif _transforms_active():
                value = recorder.apply(x, *options)  # which refuses them
            else:
                value = record_directly(x, *options)
        except RuntimeError:
            check_input(op, x)
            raise
        return value

    return record


def activator(op: str) -> Activate:
    """Make the function ``activate(x, *options)`` that returns what `op` makes of `x`.

    `activate` raises ValueError where `x` is not as `op` needs it.
    """
    overload, record = _overload(f"{_one_name(op)}_value"), recorded(op)
    call = _direct(overload)

    def activate(x: torch.Tensor, *options: float) -> torch.Tensor:
        records_itself = (
            has_node
            and type(x) is torch.Tensor  # subclasses have rules for torch's ops
            and x.is_cuda
            and not (is_dynamo_compiling() or _transforms_active())
        )
        if not records_itself:
            if is_grad_enabled() and x.requires_grad:
                return record(x, *options)
            if _forward_mode._current_level >= 0:
                check_no_tangent(op, x)
            if is_dynamo_compiling():
                value: torch.Tensor = overload(x, *options)
                return value
        try:
            value = call(x, *options)
        except RuntimeError:
            check_no_tangent(op, x)
            check_input(op, x)
            raise
        return value

    return activate


def forward_of(op: str) -> Forward:
    """Make the method ``forward(self, x)`` of the layer that returns what an `op` without options makes of `x`.

    The same as `activator` makes, but without its frame and with torch's own op first: a model that is bound
    by its host feels both (decision 58). It raises ValueError where `x` is not as `op` needs it.
    """
    overload, record = _overload(f"{_one_name(op)}_value"), recorded(op)
    call = _direct(overload)
    of_torch, dtypes_of_torch = _OF_TORCH.get(_one_name(op), (record, frozenset()))

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        records_itself = (
            has_node
            and type(x) is torch.Tensor  # subclasses have rules for torch's ops
            and x.is_cuda
            and not (is_dynamo_compiling() or _transforms_active())
        )
        if not records_itself:
            if is_grad_enabled() and x.requires_grad:
                if (
                    not is_dynamo_compiling()  # before the rest, which graphs would be guarded by
                    and x.dtype in dtypes_of_torch
                    and x.numel() <= MOST_RECORDED_BY_TORCH
                ):
                    return of_torch(x)
                return record(x)
            if _forward_mode._current_level >= 0:
                check_no_tangent(op, x)
            if is_dynamo_compiling():
                value: torch.Tensor = overload(x)
                return value
        try:
            value = call(x)
        except RuntimeError:
            check_no_tangent(op, x)
            check_input(op, x)
            raise
        return value

    return forward


def _make_recorder(name: str) -> type[torch.autograd.Function]:
    """Make the node of autograd's graph for an op; one each, since every argument costs time."""
    value = _overload(f"{name}_value")
    # Only some devices have kernels for gradients, and so only some builds have the ops.
    overload = _overload(f"{name}_backward") if _has_backward(name) else None
    call = _direct(overload)

    class Recorder(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, *options: float) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.options = options
            result: torch.Tensor = value(x, *options)
            return result

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (x,) = ctx.saved_tensors
            options = ctx.options
            # A second derivative is asked for where autograd records here: plain torch has one. It keeps tangents, too.
            in_steps = is_grad_enabled() or _forward_mode._current_level >= 0
            if overload is None or not x.is_cuda or in_steps:
                grad_x = gradients.input_gradient(name, grad, x, *options)
            elif is_dynamo_compiling():
                grad_x = overload(grad, x, *options)
            else:
                grad_x = call(grad, x, *options)
            return (grad_x, *(None for _ in options)) if options else grad_x

    return Recorder


def _has_backward(name: str) -> bool:
    return hasattr(ops, f"{name}_backward")


def _register_fakes() -> None:
    """Tell torch.compile what the ops return or fill, and check what they are given.

    A fake also stands for the ops on the device ``meta``.
    """
    for name in reference.__all__:
        torch.library.register_fake(add_op_namespace_prefix(name), partial(check_output, name))
    for name in dict.fromkeys(map(_one_name, reference.__all__)):
        value = add_op_namespace_prefix(f"{name}_value")
        torch.library.register_fake(value, partial(_make_value, name))
        if _has_backward(name):
            backward = add_op_namespace_prefix(f"{name}_backward")
            torch.library.register_fake(backward, _make_gradient)


def _make_value(op: str, x: torch.Tensor, *_options: float) -> torch.Tensor:
    check_input(op, x)
    if is_gated(op):
        return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))
    return torch.empty_like(x)


def _make_gradient(_grad: torch.Tensor, x: torch.Tensor, *_options: float) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_register_fakes()
