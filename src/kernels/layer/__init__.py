"""Kernels inside models: what they may stand for, which one stands where, and what really runs."""

from kernels.layer.device import CUDAProperties, Device, ROCMProperties
from kernels.layer.extensible import (
    replace_kernel_forward_from_hub,
    use_kernel_forward_from_hub,
    use_kernel_func_from_hub,
    use_kernelized_func,
)
from kernels.layer.kernelization import kernelize, unkernelize
from kernels.layer.mapping import register_kernel_mapping, use_kernel_mapping
from kernels.layer.mode import KernelizeFallback, Mode
from kernels.layer.reporting import LayerReport, Report, ShapeReport, report
from kernels.layer.repository import (
    FuncRepository,
    LayerRepository,
    LocalFuncRepository,
    LocalLayerRepository,
    LockedFuncRepository,
    LockedLayerRepository,
)

__all__ = [
    "CUDAProperties",
    "Device",
    "FuncRepository",
    "KernelizeFallback",
    "LayerReport",
    "LayerRepository",
    "LocalFuncRepository",
    "LocalLayerRepository",
    "LockedFuncRepository",
    "LockedLayerRepository",
    "Mode",
    "ROCMProperties",
    "Report",
    "ShapeReport",
    "kernelize",
    "register_kernel_mapping",
    "replace_kernel_forward_from_hub",
    "report",
    "unkernelize",
    "use_kernel_forward_from_hub",
    "use_kernel_func_from_hub",
    "use_kernel_mapping",
    "use_kernelized_func",
]
