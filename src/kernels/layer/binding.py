"""Puts forwards into layers and takes them out, and tells which forward a layer really has.

The forward of a kernel's layer is bound to the model's layer as an attribute of that instance; its
class stays as it is. Where the kernel can do less than the original, a forward is bound that asks
first: one without backward is not used where autograd records, one that cannot be compiled not
while compiling.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

from kernels import log
from kernels.layer.contract import find_renamed
from kernels.layer.loaded import LoadedLayer
from kernels.layer.measured import Selection
from kernels.layer.tensors import iterate_tensors

Forward = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A forward to bind, and what it does.

    Attributes:
        forward: what is bound.
        layer: the kernel's layer that it calls.
        original: the forward that it calls otherwise; None where it never does.
        selection: what was measured, where the faster of the two is taken.
    """

    forward: Forward
    layer: LoadedLayer
    original: Forward | None
    selection: Selection | None = None

    @property
    def limits(self) -> tuple[str, ...]:
        """In which calls the original runs all the same."""
        if self.original is None:
            return ()
        missing = []
        if not self.layer.has_backward:
            missing.append("the original where autograd records: the kernel has no backward")
        if not self.layer.can_torch_compile:
            missing.append("the original under torch.compile: the kernel cannot be compiled")
        return tuple(missing)


_REPLICATE = "_replicate_for_data_parallel"

_bound: dict[Forward, Bound] = {}


@functools.cache
def make_bound(layer: LoadedLayer, original: Forward, selection: Selection | None) -> Bound:
    """Make the forward that stands for an original; the same one for the same three.

    Args:
        layer: the kernel's layer.
        original: the forward of the class whose instances it is bound to.
        selection: where the faster of the two is to be taken, what keeps the measurements.
    """
    cls: Any = layer.cls
    kernel = _as_called(cls.forward, original)
    is_whole = layer.has_backward and layer.can_torch_compile
    if not is_whole:
        kernel = _guard(kernel, original, layer)
    if selection is not None:
        kernel = selection.make_forward(kernel, original)
    is_direct = is_whole and selection is None
    bound = Bound(
        forward=kernel,
        layer=layer,
        original=None if is_direct else original,
        selection=selection,
    )
    _bound[kernel] = bound
    return bound


def bind(module: Any, bound: Bound) -> None:
    """Let a layer run a bound forward."""
    module.__dict__[_slot(module)] = MethodType(bound.forward, module)
    module.__dict__[_REPLICATE] = MethodType(_replicate_for_data_parallel, module)


def unbind(module: Any) -> None:
    """Give a layer its own forward back; what others have put in its place stays."""
    slot = _slot(module)
    if _is_foreign(module, module.__dict__.get(slot)):
        return
    module.__dict__.pop(_REPLICATE, None)
    if slot == "forward":
        module.__dict__.pop(slot, None)
    else:
        kind: Any = type(module)
        module.__dict__[slot] = MethodType(kind.forward, module)


def find_bound(module: Any) -> Bound | None:
    """Return what kernel a layer really runs, or None where it runs none of ours."""
    if has_forward_of_another(module):
        return None
    forward: Any = getattr(module.__dict__.get(_slot(module)), "__func__", None)
    return _bound.get(forward)


def has_foreign_forward(module: Any) -> bool:
    """Say whether something else has replaced the forward of this very layer."""
    return _is_foreign(module, module.__dict__.get(_slot(module)))


def has_forward_of_another(module: Any) -> bool:
    """Say whether a layer runs the kernel with another one as ``self``, as after ``copy.copy``."""
    forward = module.__dict__.get(_slot(module))
    is_ours = getattr(forward, "__func__", None) in _bound
    return is_ours and getattr(forward, "__self__", module) is not module


def _replicate_for_data_parallel(self: Any) -> Any:
    """Bind the forward anew: DataParallel copies the attributes of a layer, and so the old one."""
    kind: Any = type(self)
    replica = kind._replicate_for_data_parallel(self)
    if (bound := find_bound(self)) is not None:
        bind(replica, bound)
    return replica


def _slot(module: Any) -> str:
    """Return the attribute that a layer's own forward is called by.

    accelerate puts a forward with its hooks in place and keeps the layer's in ``_old_forward``.
    """
    is_hooked = "_hf_hook" in module.__dict__ and "_old_forward" in module.__dict__
    return "_old_forward" if is_hooked else "forward"


def _is_foreign(module: Any, forward: Any) -> bool:
    if forward is None:
        return False
    kind: Any = type(module)
    function: Any = getattr(forward, "__func__", None)
    if function in _bound:
        return False
    return getattr(forward, "__self__", None) is not module or function is not kind.forward


def _as_called(kernel: Forward, original: Forward) -> Forward:
    """Take arguments by the names that the original has for them.

    A bound forward is pickled by its name, so that is ``forward`` in any case.
    """
    renamed: Mapping[str, str] = find_renamed(kernel, original)
    if not renamed and getattr(kernel, "__name__", "") == "forward":
        return kernel
    names = dict(renamed)

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs and names:
            kwargs = {names.get(name, name): value for name, value in kwargs.items()}
        return kernel(self, *args, **kwargs)

    forward.__name__ = "forward"
    return forward


def _guard(kernel: Forward, original: Forward, layer: LoadedLayer) -> Forward:
    """Call the original where the kernel lacks what the call needs; every call pays for asking."""
    import torch

    is_compiling = torch.compiler.is_compiling
    is_recorded = _make_is_recorded()
    can_compile, has_backward, name = layer.can_torch_compile, layer.has_backward, str(layer)

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not can_compile and is_compiling():
            return original(self, *args, **kwargs)
        if not has_backward and is_recorded(self, args, kwargs):
            if not is_compiling():
                _tell(name)
            return original(self, *args, **kwargs)
        return kernel(self, *args, **kwargs)

    forward.__name__ = "forward"
    return forward


def _make_is_recorded() -> Callable[[Any, tuple[Any, ...], Mapping[str, Any]], bool]:
    """Make what says whether derivatives of a call are wanted; written for speed.

    Those of the layer's parameters count, and of the layers in it: the kernel may use them all.
    """
    import torch
    from torch.autograd import forward_ad

    is_grad_enabled, is_compiling = torch.is_grad_enabled, torch.compiler.is_compiling
    tensor, holders = torch.Tensor, (list, tuple, Mapping)

    def is_recorded(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        if is_grad_enabled():
            for value in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(value, tensor):
                    if value.requires_grad:
                        return True
                elif isinstance(value, holders) and any(
                    each.requires_grad for each in iterate_tensors(value)
                ):
                    return True
            parameters = module.parameters() if module._modules else module._parameters.values()
            for each in parameters:
                if each is not None and each.requires_grad:
                    return True
        # Forward mode does not ask whether gradients are enabled.
        if getattr(forward_ad, "_current_level", 0) < 0 or is_compiling():
            return False
        duals = iterate_tensors((args, kwargs, module._parameters))
        return any(forward_ad.unpack_dual(each).tangent is not None for each in duals)

    return is_recorded


def _tell(name: str) -> None:
    if log.is_new("no-backward", name):
        log.logger().warning(
            "%s has no backward, so where autograd records its layers run their own forward. "
            "For inference, call the model under torch.inference_mode() or torch.no_grad().",
            name,
        )
