"""What ``metadata.json`` says was proved of a variant, under our own key, and a document without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernel_spec.errors import MetadataError
from kernel_spec.metadata import EXTENSION_KEY, Metadata, format_metadata, parse_metadata

PROOF = "proof"
# What the loader reads of it: {"layers": {"Silu": {"has_backward": true, ...}}}.
LAYERS = "layers"


def add_proof(
    metadata: Metadata, device: str, proof: Mapping[str, Any], layers: Mapping[str, Any]
) -> Metadata:
    """Return a document that says what was proved on a device; an older proof for it goes.

    Args:
        metadata: the document.
        device: ``cpu`` or ``cuda``.
        proof: what was proved.
        layers: what is known of layers by it.
    """
    extension = dict(metadata.extension)
    extension[PROOF] = {**_table(extension.get(PROOF)), device: dict(proof)}
    if layers:
        extension[LAYERS] = {**_table(extension.get(LAYERS)), **layers}
    return replace(metadata, extension=extension)


def remove_proof(metadata: Metadata, device: str | None = None) -> Metadata:
    """Return a document without the proof for a device; None: without any, nor what follows from it."""
    extension = dict(metadata.extension)
    proofs = _table(extension.pop(PROOF, None))
    proofs.pop(device or "", None)
    if proofs and device is not None:
        extension[PROOF] = proofs
    else:
        extension.pop(LAYERS, None)
    return replace(metadata, extension=extension)


def without_proof(data: bytes) -> bytes:
    """Return the bytes of a document as the build wrote it, before anything was proved.

    What has no proof, or cannot be read, comes back as it is.
    """
    if f'"{PROOF}"'.encode() not in data or EXTENSION_KEY.encode() not in data:
        return data
    try:
        metadata = parse_metadata(data)
    except MetadataError:
        return data
    if PROOF not in metadata.extension:
        return data
    return format_metadata(remove_proof(metadata))


def _table(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
