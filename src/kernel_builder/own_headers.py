"""The headers that the builder gives the sources of every kernel for torch."""

from __future__ import annotations

from importlib.resources import files

# Where each lies on the include path, and in the package.
_PLACES = {
    "autograd_node.h": "autograd_node.h",
    "registration.h": "registration.h",
    "torch/extension.h": "extension.h",
}


def read_own_headers() -> dict[str, bytes]:
    """Return each header, by its path below the directory that sources include it from."""
    templates = files("kernel_builder").joinpath("templates")
    return {path: templates.joinpath(name).read_bytes() for path, name in _PLACES.items()}
