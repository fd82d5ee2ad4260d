"""Functions as modules of torch, so that a kernel can take their place like that of a layer."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from kernel_spec.errors import UsageError


def make_function_class(function: Callable[..., Any]) -> type[Any]:
    """Return a subclass of ``torch.nn.Module`` whose ``forward`` calls a function.

    What the function says of itself (``can_torch_compile``, ``has_backward``) the class says too.
    """
    from torch import nn

    @functools.wraps(function)
    def forward(_: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    # Parameters after a positional-only one may be of any kind.
    forward.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own, *signature.parameters.values()]
    )
    forward.__name__ = "forward"
    members = {
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "__deepcopy__": _deepcopy,
        "__reduce__": _reduce,
        "forward": forward,
    }
    members |= {
        name: getattr(function, name)
        for name in ("can_torch_compile", "has_backward")
        if hasattr(function, name)
    }
    return type(function.__name__, (nn.Module,), members)


# A kernel's function lives as long as the process, so its class may too.
make_kernel_class = functools.lru_cache(maxsize=None)(make_function_class)


def find_function(module: str, qualname: str) -> Any:
    """Return the function of that name; what a pickled one is found by.

    Raises:
        ImportError, AttributeError: it is not there.
    """
    import importlib

    return functools.reduce(getattr, qualname.split("."), importlib.import_module(module))


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    import copy

    twin = memo[id(self)] = object.__new__(type(self))
    twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
    return twin


def _reduce(self: Any) -> tuple[Any, ...]:
    """Pickle by name, as functions are; a kernel that stands for it does not go along."""
    kind = type(self)
    place: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        place = getattr(place, name, None)
    if type(place) is not kind:
        raise UsageError(
            f"{kind.__module__}.{kind.__qualname__} cannot be pickled: like any function it is "
            "pickled by its name, and under that name there is something else."
        )
    return find_function, (kind.__module__, kind.__qualname__)
