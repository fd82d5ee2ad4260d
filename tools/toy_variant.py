"""Turns a folder of Python into a variant for the CPU, as a build of it would be: for tests and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_spec.backend import BackendKind
from kernel_spec.digest import digest_tree
from kernel_spec.metadata import FILE_NAME, Metadata, format_metadata


def write_toy_metadata(
    variant: Path, name: str = "toy", *, extension: Mapping[str, Any] | None = None
) -> None:
    """Write the metadata of a variant, whose other files are there: version 1, with their digest."""
    metadata = Metadata(
        name=name,
        id=f"_{name}_cpu_0123456789ab",
        version=1,
        license="Apache-2.0",
        backend=BackendKind.CPU,
        digest=digest_tree(variant),
        extension=extension or {},
    )
    (variant / FILE_NAME).write_bytes(format_metadata(metadata))
