"""Load compute kernels from a hub with one line.

>>> from kernels import get_kernel
>>> activation = get_kernel("kernels-community/activation")  # doctest: +SKIP

Only what every load needs is imported here; torch and huggingface_hub are not. The values of
this package are named tuples: to define a frozen dataclass takes half a millisecond, eight times
as long, and what is imported here is imported by every process that uses a kernel.
"""

from typing import TYPE_CHECKING, Any

from kernel_spec.compat import Accepted as VariantAccepted
from kernel_spec.compat import Rejected as VariantRejected
from kernel_spec.metadata import Metadata
from kernels._version import __version__
from kernels.dependency import get_kernel_dep
from kernels.load import (
    get_kernel,
    get_kernel_variants,
    get_local_kernel,
    has_kernel,
    install_kernel,
)
from kernels.load_locked import get_locked_kernel, load_kernel
from kernels.loaded import LoadedKernel, RepoInfo, get_loaded_kernels

if TYPE_CHECKING:
    from kernels.layer import (
        CUDAProperties,
        Device,
        FuncRepository,
        KernelizeFallback,
        LayerReport,
        LayerRepository,
        LocalFuncRepository,
        LocalLayerRepository,
        LockedFuncRepository,
        LockedLayerRepository,
        Mode,
        Report,
        ROCMProperties,
        ShapeReport,
        kernelize,
        register_kernel_mapping,
        replace_kernel_forward_from_hub,
        report,
        unkernelize,
        use_kernel_forward_from_hub,
        use_kernel_func_from_hub,
        use_kernel_mapping,
        use_kernelized_func,
    )

__all__ = [
    "CUDAProperties",
    "Device",
    "FuncRepository",
    "KernelizeFallback",
    "LayerReport",
    "LayerRepository",
    "LoadedKernel",
    "LocalFuncRepository",
    "LocalLayerRepository",
    "LockedFuncRepository",
    "LockedLayerRepository",
    "Metadata",
    "Mode",
    "ROCMProperties",
    "RepoInfo",
    "Report",
    "ShapeReport",
    "VariantAccepted",
    "VariantRejected",
    "__version__",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "get_locked_kernel",
    "has_kernel",
    "install_kernel",
    "kernelize",
    "load_kernel",
    "register_kernel_mapping",
    "replace_kernel_forward_from_hub",
    "report",
    "unkernelize",
    "use_kernel_forward_from_hub",
    "use_kernel_func_from_hub",
    "use_kernel_mapping",
    "use_kernelized_func",
]


def __getattr__(name: str) -> Any:
    """Import what has to do with layers when it is first asked for: few processes need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module("kernels.layer"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
