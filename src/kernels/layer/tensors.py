"""The tensors in what a layer is called with: which there are, and copies of them to try things on."""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator, Mapping
from typing import Any


def iterate_tensors(values: Any) -> Iterator[Any]:
    """Yield the tensors of a value, in lists, tuples and dictionaries at any depth."""
    import torch

    stack = [values]
    while stack:
        value = stack.pop()
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            stack += reversed(value)
        elif isinstance(value, Mapping):
            stack += reversed(list(value.values()))


def can_be_copied(values: Any) -> bool:
    """Say whether :func:`copy_values` copies all of a value that a call could change.

    It does not where there is more than tensors, numbers and the like in lists, tuples and
    dictionaries: a cache of keys and values, for example.
    """
    match values:
        case list() | tuple():
            is_known = type(values) in {list, tuple} or hasattr(values, "_fields")
            return (is_known or _is_constant(values)) and all(map(can_be_copied, values))
        case dict():
            return type(values) is dict and all(map(can_be_copied, values.values()))
        case _:
            return _is_constant(values) or _is_plain(values)


def copy_values(values: Any) -> Any:
    """Copy the tensors of a value, and the lists and dictionaries that they are in.

    A copy has the strides of its tensor, shares no memory with it, and where autograd recorded
    that one it records the copy from here on.
    """
    import torch

    match values:
        case torch.Tensor():
            return _copy(values)
        case dict():
            return {key: copy_values(value) for key, value in values.items()}
        case list():
            return [copy_values(value) for value in values]
        case tuple() if hasattr(values, "_fields"):
            return type(values)(*map(copy_values, values))
        case tuple() if type(values) is tuple:
            return tuple(map(copy_values, values))
        case _:
            return values


def _copy(tensor: Any) -> Any:
    import torch

    if not tensor.numel():
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    # As much memory as the tensor spans: several of its elements may be one in memory.
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    span = 1 + sum((size - 1) * stride for size, stride in sizes)
    memory = tensor.detach().as_strided((span,), (1,)).clone()
    if not tensor.requires_grad or tensor.is_leaf:
        return memory.as_strided(tensor.shape, tensor.stride()).requires_grad_(tensor.requires_grad)
    with torch.enable_grad():
        # No leaf either, since those cannot be written to.
        return memory.requires_grad_().clone().as_strided(tensor.shape, tensor.stride())


def _is_constant(value: Any) -> bool:
    import torch

    kinds = (
        *(bool, int, float, complex, str, bytes, type, enum.Enum, types.FunctionType),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
    )
    return value is None or isinstance(value, kinds)


def _is_plain(value: Any) -> bool:
    import torch

    is_plain = type(value) in {torch.Tensor, torch.nn.Parameter}
    return is_plain and value.layout is torch.strided and not value.is_quantized
