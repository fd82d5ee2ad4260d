"""Load compute kernels from a hub with one line.

>>> from kernels import get_kernel
>>> activation = get_kernel("kernels-community/activation")  # doctest: +SKIP

Names are imported when they are first used: ``import kernels`` itself costs almost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernels._version import __version__

if TYPE_CHECKING:
    from kernel_spec.compat import Accepted as VariantAccepted
    from kernel_spec.compat import Rejected as VariantRejected
    from kernel_spec.metadata import Metadata
    from kernels.load import (
        LoadedKernel,
        RepoInfo,
        get_kernel,
        get_kernel_variants,
        get_loaded_kernels,
        get_local_kernel,
        has_kernel,
        install_kernel,
    )

__all__ = [
    "LoadedKernel",
    "Metadata",
    "RepoInfo",
    "VariantAccepted",
    "VariantRejected",
    "__version__",
    "get_kernel",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "has_kernel",
    "install_kernel",
]

_PLACES = {
    "Metadata": ("kernel_spec.metadata", "Metadata"),
    "VariantAccepted": ("kernel_spec.compat", "Accepted"),
    "VariantRejected": ("kernel_spec.compat", "Rejected"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'kernels' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _PLACES.get(name, ("kernels.load", name))
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
