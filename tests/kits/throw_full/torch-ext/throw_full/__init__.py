"""Lets exceptions of torch cross the border between torch and the kernel."""

from ._ops import ops


def describe_mismatch(a, b):
    """Say which exception ``a @ b`` throws; IndexError where it throws none."""
    return ops.describe_mismatch(a, b)


__all__ = ["describe_mismatch"]
