"""The ``metadata.json`` of a variant that is there, written anew, whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_builder.errors import StorageError
from kernel_builder.proof import remove_proof
from kernel_spec.digest import digest_tree
from kernel_spec.errors import MetadataError
from kernel_spec.metadata import FILE_NAME, Metadata, format_metadata, parse_metadata
from kernel_spec.whole_file import write_whole


def write_digest(variant: Path) -> bool:
    """Hash every file of a variant, and write that into its metadata where it says otherwise.

    A proof of the gate, which was of other files, goes.

    Returns:
        Whether it said otherwise.

    Raises:
        MetadataError: the metadata cannot be read; every fault is named.
        IntegrityError: the tree holds what a variant may not, such as a symbolic link.
        StorageError: the metadata cannot be written.
    """
    try:
        metadata = parse_metadata((variant / FILE_NAME).read_bytes())
    except MetadataError as err:
        raise MetadataError(f"{variant.name}/{FILE_NAME}", err.faults) from err
    digest = digest_tree(variant, metadata.digest.algorithm if metadata.digest else "sha256")
    if metadata.digest == digest:
        return False
    write_metadata(variant, remove_proof(replace(metadata, digest=digest)))
    return True


def write_metadata(variant: Path, metadata: Metadata) -> None:
    """Write the metadata of a variant.

    Raises:
        StorageError: it cannot be written.
    """
    place = variant / FILE_NAME
    try:
        # Beside the variant: whoever hashes it meanwhile finds no file too many.
        write_whole(place, format_metadata(metadata), beside=variant.parent)
    except OSError as err:
        raise StorageError(
            f"{place}: cannot be written: {err.strerror}; make it writable for this user"
        ) from err
