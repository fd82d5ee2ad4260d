"""The gate: what is proved of a kernel by running it, before it is published."""

from kernel_builder.gate.case import Case

__all__ = ["Case"]
