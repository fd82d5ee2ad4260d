"""What the NVIDIA driver says of the GPUs of this machine."""

from __future__ import annotations

import ctypes

from kernel_builder.errors import ToolchainError

# The driver's numbers for the two halves of a capability, and the names of its errors:
# https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html
_MAJOR, _MINOR = 75, 76


def read_device_archs(library: str = "libcuda.so.1") -> tuple[str, ...]:
    """Return the capabilities of the GPUs that this process sees, each once, sorted.

    Args:
        library: the driver's library.

    Raises:
        ToolchainError: there is no driver, or it sees no GPU.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError as err:
        raise ToolchainError(
            f"--arch native: there is no NVIDIA driver here ({err}); name the capabilities that "
            "are wanted, such as --arch 9.0"
        ) from err
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        raise ToolchainError(
            f"--arch native: the NVIDIA driver sees no GPU (code {code}); name the capabilities "
            "that are wanted, such as --arch 9.0"
        )
    found = set()
    for device in range(count.value):
        halves = []
        for attribute in (_MAJOR, _MINOR):
            value = ctypes.c_int()
            code = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
            if code != 0:
                raise ToolchainError(
                    f"--arch native: the NVIDIA driver does not say the capability of GPU {device} "
                    f"(code {code}); name it, such as --arch 9.0"
                )
            halves.append(value.value)
        found.add((halves[0], halves[1]))
    return tuple(f"{major}.{minor}" for major, minor in sorted(found))
