"""Turns a folder of Python into a variant, as a build of it would be: for tests and measurements."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_spec.backend import BackendKind
from kernel_spec.digest import digest_tree
from kernel_spec.metadata import FILE_NAME, Metadata, format_metadata
from kernel_spec.names import module_name


def write_toy_metadata(
    variant: Path,
    name: str = "toy",
    *,
    version: int = 1,
    backend: BackendKind = BackendKind.CPU,
    extension: Mapping[str, Any] | None = None,
) -> None:
    """Write the metadata of a variant, whose other files are there, with their digest."""
    metadata = Metadata(
        name=name,
        id=f"_{module_name(name)}_{backend}_0123456789ab",
        version=version,
        license="Apache-2.0",
        backend=backend,
        digest=digest_tree(variant),
        extension=extension or {},
    )
    (variant / FILE_NAME).write_bytes(format_metadata(metadata))
