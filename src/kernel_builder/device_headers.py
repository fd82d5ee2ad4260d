"""Headers of torch that nvcc reads for every architecture, though only host code needs them. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from kernel_builder.planned import VariantBuild
from kernel_builder.sources import SourceFile
from kernel_builder.units import needs_device_compiler

_OF_TORCH = ("torch/", "ATen/", "c10/")
# Small ones, for types alone.
_CHEAP = ("torch/headeronly/",)


def note_device_headers(listed: Iterable[SourceFile], variant: VariantBuild) -> list[str]:
    """Say which files for nvcc include torch's headers, in one sentence; nothing where none does.

    With torch's stable headers and nine architectures an otherwise empty file took 20 CPU seconds in
    place of 3.4. A file for one architecture is not worth a word, unless it includes the full ones.
    """
    files = {file.path: file for file in listed}
    found = []
    for unit in variant.units:
        file = files.get(unit.source)
        if file is None or not needs_device_compiler(unit):
            continue
        header = _find_torch_header(file, files, set(), unit.include)
        if header is not None and (len(unit.archs) > 1 or variant.stable_abi is None):
            found.append((unit.source, header))
    if not found:
        return []
    source, header = found[0]
    others = f", and so do {len(found) - 1} more" if len(found) > 1 else ""
    return [
        f"{variant.variant}: {source} includes {header}{others}; nvcc reads it for each architecture. "
        "To build faster, keep what needs torch in a .cpp file of the component, and hand plain "
        "pointers to the .cu file"
    ]


def _find_torch_header(
    file: SourceFile, files: Mapping[str, SourceFile], seen: set[str], include: Iterable[str]
) -> str | None:
    """Return the first header of torch that a file includes, itself or through headers of the project."""
    seen.add(file.path)
    for name in file.includes:
        if name.startswith(_OF_TORCH) and not name.startswith(_CHEAP):
            return name
        here = posixpath.dirname(file.path)
        places = [
            posixpath.normpath(posixpath.join(top, name))
            for top in (here, *include, "csrc", "torch-ext", "")
        ]
        inner = next((files[place] for place in places if place in files), None)
        if inner is not None and inner.path not in seen:
            found = _find_torch_header(inner, files, seen, include)
            if found is not None:
                return found
    return None
