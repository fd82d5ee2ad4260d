"""Layers and functions that kernels may stand for: how they are marked, and found in a model."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel_spec.errors import UsageError, WrongTypeError
from kernels.errors import NotALayerError
from kernels.layer.function import make_function_class

Condition = Callable[[Any], bool]

# By these two other libraries, too, know what is marked: on a class what mappings call it, on a
# layer the marked functions that it calls.
NAME = "kernel_layer_name"
FUNCTIONS = "_kernel_funcs"
_CONDITION = "kernel_condition"


@dataclass(frozen=True, kw_only=True)
class ExtensibleLayer:
    """A layer or function of a model that a kernel may stand for.

    Attributes:
        path: where it is in the model, such as ``model.layers.0.input_layernorm``.
        name: what mappings call it.
        module: the layer; a function as a module.
        users: how many modules of the model use it, for a function, which all models of a
            process share; None for a layer.
    """

    path: str
    name: str
    module: Any
    users: int | None = None


def use_kernel_forward_from_hub(
    layer_name: str, condition: Condition | None = None
) -> Callable[[Any], Any]:
    """Mark a layer's class, or a function, as one that kernels may stand for.

    That alone changes nothing: :func:`kernels.kernelize` puts the kernel into the layers of a
    model. A function becomes a module that is called like it; all who call it get its kernel.

    Args:
        layer_name: what mappings call it.
        condition: asked for each layer when a model is kernelized; False leaves it as it is.

    Raises:
        WrongTypeError: ``layer_name`` is no text.
        NotALayerError: neither a class of layers nor a function is decorated; it is also a
            TypeError.
    """
    _require_mark(layer_name, condition)

    def mark(target: Any) -> Any:
        if inspect.isclass(target):
            replace_kernel_forward_from_hub(target, layer_name, condition)
            return target
        if inspect.isfunction(target):
            kind = make_function_class(target)
            replace_kernel_forward_from_hub(kind, layer_name, condition)
            return kind()
        raise NotALayerError(
            f"use_kernel_forward_from_hub({layer_name!r}): expected a class of layers or a "
            f"function, found {target!r}."
        )

    return mark


def use_kernel_func_from_hub(
    func_name: str, condition: Condition | None = None
) -> Callable[[Any], Any]:
    """Do what :func:`use_kernel_forward_from_hub` does; older code's name for functions."""
    return use_kernel_forward_from_hub(func_name, condition)


def replace_kernel_forward_from_hub(
    cls: type[Any], layer_name: str, condition: Condition | None = None
) -> None:
    """Mark a class that somebody else wrote, such as ``torch.nn.LayerNorm``.

    Args:
        cls: a subclass of ``torch.nn.Module``.
        layer_name: what mappings call it.
        condition: as for :func:`use_kernel_forward_from_hub`.

    Raises:
        WrongTypeError: an argument of another type.
    """
    _require_mark(layer_name, condition)
    if not inspect.isclass(cls):
        raise WrongTypeError("cls", "a class of layers", cls)
    setattr(cls, NAME, layer_name)
    setattr(cls, _CONDITION, staticmethod(condition or _always))


def _require_mark(layer_name: object, condition: object) -> None:
    if not isinstance(layer_name, str):
        raise WrongTypeError("layer_name", "the name of a layer", layer_name)
    if condition is not None and not callable(condition):
        raise WrongTypeError("condition", "a function of a layer", condition)


def use_kernelized_func(*functions: Any) -> Callable[[type[Any]], type[Any]]:
    """Say of a class of layers which marked functions its ``forward`` calls.

    Without this :func:`kernels.kernelize` would not find them in a model.

    Args:
        functions: functions decorated with :func:`use_kernel_forward_from_hub`.

    Raises:
        WrongTypeError: one of them is no function or class at all.
        UsageError: one of them is not decorated; it is also a ValueError.
    """
    for function in functions:
        if not callable(function):
            raise WrongTypeError("use_kernelized_func", "decorated functions", function)
    plain = [
        getattr(function, "__name__", repr(function))
        for function in functions
        if not hasattr(function, NAME)
    ]
    if plain:
        raise UsageError(
            f"use_kernelized_func: {', '.join(plain)} is not decorated with "
            "@use_kernel_forward_from_hub."
        )

    def mark(cls: type[Any]) -> type[Any]:
        build = cls.__init__

        @functools.wraps(build)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            build(self, *args, **kwargs)
            known = self.__dict__.setdefault(FUNCTIONS, _SharedFunctions())
            known.update({getattr(function, NAME): function for function in functions})

        cls.__init__ = __init__
        return cls

    return mark


def find_extensible_layers(model: Any) -> list[ExtensibleLayer]:
    """List the extensible layers and functions of a model, each once, in the model's order."""
    require_module(model)
    places: dict[int, tuple[str, str, Any]] = {}
    users: dict[int, int] = {}
    for path, module in model.named_modules():
        # Not by getattr: a wrapper that passes names on has none of its own.
        functions = vars(module).get(FUNCTIONS) or getattr(type(module), FUNCTIONS, None) or {}
        for name, function in functions.items():
            users[id(function)] = users.get(id(function), 0) + 1
            place = f"{path}.{name}" if path else name
            places.setdefault(id(function), (place, name, function))
        name = getattr(type(module), NAME, None)
        if name is not None:
            places.setdefault(id(module), (path, str(name), module))
    return [
        ExtensibleLayer(path=path, name=name, module=module, users=users.get(key))
        for key, (path, name, module) in places.items()
    ]


def require_module(model: Any) -> None:
    """Refuse what is no model.

    Raises:
        WrongTypeError: it is no ``torch.nn.Module``.
    """
    from torch import nn

    if not isinstance(model, nn.Module):
        raise WrongTypeError("model", "a torch.nn.Module", model)


def why_excluded(module: Any) -> str | None:
    """Say why a marked layer is left as it is whatever is mapped; None where it is not."""
    kind = type(module)
    condition = getattr(kind, _CONDITION, None)
    if condition is not None and not condition(module):
        return "the condition of its decorator excludes it"
    order = kind.__mro__
    marked = next(index for index, each in enumerate(order) if NAME in vars(each))
    written = next((index for index, each in enumerate(order) if "forward" in vars(each)), marked)
    if written < marked:
        return (
            f"{order[written].__name__} has a forward of its own, and it is "
            f"{order[marked].__name__} that is marked: decorate the subclass, too, if a kernel does "
            "what it does"
        )
    return None


class _SharedFunctions(dict[str, Any]):
    """The functions that a module calls; a copy of the module calls the very same ones."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _SharedFunctions:
        return _SharedFunctions(self)


def _always(_: Any) -> bool:
    return True
