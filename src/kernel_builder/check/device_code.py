"""The rule that a library holds code for the architectures that ``metadata.json`` names."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_builder.archs import expected_code
from kernel_builder.check.finding import Finding
from kernel_builder.check.subject import SharedLibrary, Subject
from kernel_spec.backend import BackendKind
from kernel_spec.binary import read_device_code
from kernel_spec.errors import BinaryFormatError


def check_device_code(library: SharedLibrary, subject: Subject) -> Iterator[Finding]:
    """Find architectures that are named and not there, and those that are there and not named."""
    if subject.metadata.backend is not BackendKind.CUDA or not subject.metadata.archs:
        return
    try:
        images = read_device_code(subject.directory / library.file)
    except BinaryFormatError as err:
        yield Finding(
            file=library.file,
            rule="device-code",
            message=f"its device code cannot be read, so nothing of it is proved: {err}",
            fix="build the variant again",
        )
        return
    cubins, ptx = expected_code(subject.metadata.archs)
    for kind, expected in (("cubin", cubins), ("ptx", ptx)):
        found = {image.arch for image in images if image.kind == kind}
        for arch in sorted(expected ^ found):
            there = arch in found
            yield Finding(
                file=library.file,
                rule="device-code",
                symbol=arch,
                message=f"it holds {kind} for it, and metadata.json does not name it"
                if there
                else f"metadata.json names it, and the library holds no {kind} for it",
                fix="build the variant with kernel-builder, and set no -gencode in cuda-flags",
            )
