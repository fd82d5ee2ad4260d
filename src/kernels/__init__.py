"""Load compute kernels from a hub with one line.

>>> from kernels import get_kernel
>>> activation = get_kernel("kernels-community/activation")  # doctest: +SKIP

Only what every load needs is imported here; torch and huggingface_hub are not. The values of
this package are named tuples: to define a frozen dataclass takes half a millisecond, eight times
as long, and what is imported here is imported by every process that uses a kernel.
"""

from kernel_spec.compat import Accepted as VariantAccepted
from kernel_spec.compat import Rejected as VariantRejected
from kernel_spec.metadata import Metadata
from kernels._version import __version__
from kernels.load import (
    get_kernel,
    get_kernel_variants,
    get_local_kernel,
    has_kernel,
    install_kernel,
)
from kernels.loaded import LoadedKernel, RepoInfo, get_loaded_kernels

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
