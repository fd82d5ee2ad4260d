"""Functions that double their input, each wrong in one way that only running it shows."""

import ctypes
import os
import signal

import torch

from ._ops import add_op_namespace_prefix, ops

_library = torch.library.Library(ops.name, "FRAGMENT")


def _define(name, function, schema="(Tensor x) -> Tensor"):
    _library.define(f"{name}{schema}")
    _library.impl(name, function, "CPU")


def _fake(name, function):
    torch.library.register_fake(add_op_namespace_prefix(name), function)


def _backward(name, factor=2):
    torch.library.register_autograd(
        add_op_namespace_prefix(name), lambda _, grad: factor * grad, setup_context=_keep_nothing
    )


def _keep_nothing(ctx, inputs, output):
    pass


def _double(x):
    return (2 * x).contiguous()


def _empty(x):
    return x.new_empty(x.shape)


def _silent(x):
    """As code that works on pointers: autograd sees nothing of it."""
    return _double(x.detach())


def _overwrite(x):
    return x.mul_(2).clone()


for _name, _function, _of_fake in (
    ("right", _double, _empty),
    ("lying_schema", _overwrite, _empty),
    ("lying_schema_of_8_bits", lambda x: x.zero_().clone(), _empty),
    ("no_fake", _double, None),
    ("fake_shape", _double, lambda x: x.new_empty((*x.shape, 1))),
    ("fake_dtype", _double, lambda x: x.new_empty(x.shape, dtype=torch.float64)),
    ("fake_strides", _double, lambda x: x.new_empty(x.shape[::-1]).t()),
    ("no_backward", _silent, _empty),
    ("wrong_backward", _double, _empty),
    ("unreached", _double, _empty),
):
    _define(_name, _function)
    if _of_fake is not None:
        _fake(_name, _of_fake)
    if _name != "no_backward":
        _backward(_name, 3 if _name == "wrong_backward" else 2)


def right(x):
    return ops.right(x)


def lying_schema(x):
    return ops.lying_schema(x)


def lying_schema_of_8_bits(x):
    return ops.lying_schema_of_8_bits(x)


def no_fake(x):
    return ops.no_fake(x)


def fake_shape(x):
    return ops.fake_shape(x)


def fake_dtype(x):
    return ops.fake_dtype(x)


def fake_strides(x):
    return ops.fake_strides(x)


def no_backward(x):
    return ops.no_backward(x)


def wrong_backward(x):
    return ops.wrong_backward(x)


def other_compiled(x):
    return 3 * x if torch.compiler.is_compiling() else 2 * x


def zero_scale(x):
    scale = x.abs().amax(-1, keepdim=True) if x.numel() else torch.ones(())
    return 2 * (x / scale) * scale


def unwritten_end(out, x):
    """As a kernel that forgets what is left over by vectors of eight."""
    whole = x.numel() // 8 * 8
    out.view(-1)[:whole] = 2 * x.reshape(-1)[:whole]


def unwritten_own(x):
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    unwritten_end(out, x)
    return out


def overflow(out, x):
    """As a kernel whose count of elements is an int."""
    count = ctypes.c_int32(x.numel()).value
    if count > 0:
        out.view(-1)[:count] = 2 * x.reshape(-1)[:count]


def strided(x):
    """As a kernel that takes every tensor for contiguous."""
    return 2 * torch.as_strided(x, x.shape, (x.shape[-1], 1))


def killed(x):
    if x.numel() == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    return 2 * x
