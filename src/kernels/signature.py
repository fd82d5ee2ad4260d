"""What is known of who made a variant: a signature beside its metadata, the digest in it, and what it says itself.

A signature is a Sigstore bundle over the bytes of ``metadata.json``, which hold the digest of every other
file. This client knows no signers yet, so it can find that a signature is missing, broken or for other
bytes, and never that it is good.

Source of the format: Sigstore's protobuf-specs, ``sigstore_bundle.proto``, in its JSON form.
"""

from __future__ import annotations

import base64
import hashlib
import json
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from kernel_spec.document import UNREADABLE, read_plain
from kernel_spec.metadata import FILE_NAME
from kernel_spec.provenance import Provenance
from kernels.variant_dir import SIGNATURE_NAME, VariantDir

_BUNDLE = "application/vnd.dev.sigstore.bundle"


class SignatureState(StrEnum):
    """What stands beside a variant's metadata."""

    NONE = "none"
    BROKEN = "broken"
    OTHER_BYTES = "other-bytes"
    UNCHECKED = "unchecked"


class Testimony(NamedTuple):
    """What speaks for a variant, strongest first.

    Attributes:
        signature: whether there is a signature, and of what.
        detail: why it is broken; empty otherwise.
        has_digest: whether the metadata names the hash of every file; they were compared.
        provenance: what the metadata says of who built it and from what; nobody has signed that.
    """

    signature: SignatureState
    detail: str
    has_digest: bool
    provenance: Provenance | None

    @property
    def is_verified(self) -> bool:
        """Whether it is proved who made the variant: never, before this client knows signers."""
        return False


def examine(variant: VariantDir) -> Testimony:
    """Look at what speaks for a variant whose bytes were compared with its metadata.

    Raises:
        OSError: its files cannot be read.
    """
    state, detail = _examine_signature(variant.path)
    return Testimony(
        signature=state,
        detail=detail,
        has_digest=variant.metadata.digest is not None,
        provenance=variant.metadata.provenance,
    )


def _examine_signature(folder: Path) -> tuple[SignatureState, str]:
    try:
        document = json.loads(read_plain(folder / SIGNATURE_NAME))
        if not str(document["mediaType"]).startswith(_BUNDLE):
            return SignatureState.BROKEN, f"its media type is {document['mediaType']!r}"
        signed = _signed_sha256(document)
    except FileNotFoundError:
        return SignatureState.NONE, ""
    except UNREADABLE as err:
        return SignatureState.BROKEN, f"it cannot be read: {err!r}"
    actual = hashlib.sha256(read_plain(folder / FILE_NAME)).digest()
    return SignatureState.UNCHECKED if signed == actual else SignatureState.OTHER_BYTES, ""


def _signed_sha256(document: dict[str, Any]) -> bytes:
    """Return the sha256 of what a bundle signs; of an envelope, of the only subject of its statement."""
    if "messageSignature" in document:
        signed = document["messageSignature"]["messageDigest"]
        if signed["algorithm"] != "SHA2_256":
            raise ValueError(f"its digest is {signed['algorithm']}, expected SHA2_256")
        return base64.b64decode(signed["digest"], validate=True)
    statement = json.loads(base64.b64decode(document["dsseEnvelope"]["payload"], validate=True))
    [subject] = statement["subject"]
    return bytes.fromhex(subject["digest"]["sha256"])
