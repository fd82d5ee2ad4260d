"""Reading mangled C++ names: as people write them, and which namespaces they mention.

The mangling: https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from functools import cache
from typing import Any

# A namespace is written as its length and its name; it opens a nested name (N...E), perhaps
# after qualifiers (NK, NVK). This finds it wherever it stands: in the type of a typeinfo or a
# vtable, in a return type, in the arguments of a template.
_TORCH = re.compile(r"N[rVK]*[RO]?(3c10|2at|5torch|6caffe2)(?=[0-9A-Za-z])")

# The first component of the name of a function, plain or in a namespace.
_OUTERMOST = re.compile(r"_Z(?:N[rVK]*[RO]?)?(\d+)")
_TORCH_NAMESPACES = ("c10", "at", "torch", "caffe2")


def demangle(name: str) -> str:
    """Write a mangled name as C++ does; other names, and unreadable ones, stay as they are."""
    runtime = _find_runtime()
    if runtime is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    address = runtime.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not address:
        return name
    try:
        text = ctypes.string_at(address).decode(errors="replace")
    finally:
        runtime.free(ctypes.c_void_p(address))
    return text


def mentions_torch(name: str) -> bool:
    """Say whether a mangled name involves anything of torch's C++ interface."""
    return name.startswith("_Z") and _TORCH.search(name) is not None


def is_foreign_to_torch(name: str) -> bool:
    """Say whether a mangled name is of a function outside torch's namespaces, whatever its arguments.

    Templates do not count: torch instantiates its own in other people's namespaces.
    """
    match = _OUTERMOST.match(name)
    if match is None:
        return False
    end = match.end() + int(match[1])
    return name[match.end() : end] not in _TORCH_NAMESPACES and name[end : end + 1] != "I"


@cache
def _find_runtime() -> Any:
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    runtime.free.argtypes = [ctypes.c_void_p]
    return runtime
