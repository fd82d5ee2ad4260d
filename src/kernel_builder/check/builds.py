"""Whether the directories of a build are variants of one kernel, by their names and metadata alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_builder.errors import ProjectError
from kernel_spec.errors import MetadataError, VariantNameError
from kernel_spec.metadata import FILE_NAME, Metadata, parse_metadata
from kernel_spec.variant import parse_variant


def list_builds(directory: Path) -> tuple[Path, ...]:
    """Return the directories that should be variants: of ``build``, or of the directory itself.

    Raises:
        ProjectError: there is none.
    """
    if (directory / FILE_NAME).is_file():
        return (directory.resolve(),)
    inside = directory / "build"
    root = inside if inside.is_dir() else directory
    entries = sorted(root.iterdir()) if root.is_dir() else []
    found = tuple(path for path in entries if path.is_dir() and not path.name.startswith("."))
    # Where nothing at all is one, the directory is another than the one that was meant.
    if root is directory and not any(_is_meant_as_variant(place) for place in found):
        found = ()
    if not found:
        raise ProjectError(
            f"{root}: no variant there; build the project first: kernel-builder build {directory}"
        )
    return found


def _is_meant_as_variant(place: Path) -> bool:
    try:
        parse_variant(place.name)
    except VariantNameError:
        return (place / FILE_NAME).exists()
    return True


def find_build_faults(builds: Sequence[Path]) -> list[str]:
    """Say what keeps directories from being variants of one kernel, a line each."""
    faults: list[str] = []
    kernels: dict[tuple[str, int], str] = {}
    for place in builds:
        metadata = _read(place, faults)
        if metadata is not None:
            kernels.setdefault((metadata.name, metadata.version), place.name)
    if len(kernels) > 1:
        shown = ", ".join(
            f"{place} is of {name} version {version}"
            for (name, version), place in sorted(kernels.items())
        )
        faults.append(
            f"variants of different kernels or versions: {shown}; build all of them again"
        )
    return faults


def _read(place: Path, faults: list[str]) -> Metadata | None:
    try:
        parse_variant(place.name)
    except VariantNameError as err:
        faults.append(f"{place.name}: {' '.join(str(err).split())}")
    try:
        return parse_metadata((place / FILE_NAME).read_bytes())
    except FileNotFoundError:
        faults.append(f"{place.name}: it has no {FILE_NAME}; build it with kernel-builder")
    except (MetadataError, OSError) as err:
        faults.append(f"{place.name}: {FILE_NAME} cannot be read: {' '.join(str(err).split())}")
    return None
