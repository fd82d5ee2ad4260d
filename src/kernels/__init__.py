"""Load compute kernels from a hub with one line.

>>> from kernels import get_kernel
>>> activation = get_kernel("kernels-community/activation")  # doctest: +SKIP

Nothing is imported with this package: each public name brings its module when it is first asked
for, because many processes import a library that can use kernels and load none. The values of the
loader are named tuples: to define a frozen dataclass takes half a millisecond, eight times as long,
and every process that uses a kernel defines them.
"""

from kernels._version import __version__

# What `typing` calls so; to import that module takes longer than all that is done here.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from kernel_spec.compat import Accepted as VariantAccepted
    from kernel_spec.compat import Rejected as VariantRejected
    from kernel_spec.metadata import Metadata
    from kernels.dependency import get_kernel_dep
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
    from kernels.load import (
        get_kernel,
        get_kernel_variants,
        get_local_kernel,
        has_kernel,
        install_kernel,
    )
    from kernels.load_locked import get_locked_kernel, load_kernel
    from kernels.loaded import LoadedKernel, RepoInfo, get_loaded_kernels

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


# Where a public name is defined; those of kernels.layer are not listed.
_PLACES = {
    "LoadedKernel": "kernels.loaded",
    "Metadata": "kernel_spec.metadata",
    "RepoInfo": "kernels.loaded",
    "VariantAccepted": "kernel_spec.compat",
    "VariantRejected": "kernel_spec.compat",
    "get_kernel": "kernels.load",
    "get_kernel_dep": "kernels.dependency",
    "get_kernel_variants": "kernels.load",
    "get_loaded_kernels": "kernels.loaded",
    "get_local_kernel": "kernels.load",
    "get_locked_kernel": "kernels.load_locked",
    "has_kernel": "kernels.load",
    "install_kernel": "kernels.load",
    "load_kernel": "kernels.load_locked",
}


# What callers write after no more than `import kernels`.
_MODULES = ("layer", "load")


def __getattr__(name: str) -> object:
    """Import what is asked for: a public name, once."""
    if name not in __all__ and name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"kernels.{name}")
    module = import_module(_PLACES.get(name, "kernels.layer"))
    value: object = getattr(module, name.removeprefix("Variant"))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
