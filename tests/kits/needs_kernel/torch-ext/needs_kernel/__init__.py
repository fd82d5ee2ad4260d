"""Scales twice, by a kernel that it needs."""

from packaging.version import Version

from kernels import get_kernel_dep

__all__ = ["scale_twice"]

_scale = get_kernel_dep("acme/scale-noarch")


def scale_twice(x, by):
    """Return ``x * by * by``."""
    assert Version("1.0")
    return _scale.scale(_scale.scale(x, by), by)
