"""``metadata.json``: what a variant says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_spec.backend import BackendKind
from kernel_spec.digest import Digest

FILE_NAME = "metadata.json"

# Everything that the published format does not know sits under this one key.
EXTENSION_KEY = "kernels-ext"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelDependency:
    """A kernel that this one needs: by version (branch ``vN``) or by revision."""

    repo_id: str
    version: int | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Who built a variant and from what."""

    builder_version: str
    builder_commit: str | None = None
    builder_dirty: bool | None = None
    kernel_commit: str | None = None
    kernel_dirty: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Metadata:
    """What a variant says of itself.

    Attributes:
        name: the kernel's name (``triton-layer-norm``).
        id: the namespace of its ops and the stem of its library.
        version: its API generation.
        license: an SPDX expression or free text.
        backend: the backend that this variant is for.
        archs: the device architectures in the binary (``9.0a``, ``gfx942``).
        python_depends: Python packages that it imports, by name.
        kernel_depends: kernels that it loads.
        minver: the oldest client that loads it, as three numbers.
        upstream: the git URL of the project that it was taken from.
        source: the git URL of its own sources.
        digest: the hash of each of its files.
        provenance: who built it and from what.
        extension: our own keys; the published client does not read them.
        unknown: keys that this version does not know, kept as they were.
    """

    name: str
    id: str
    version: int
    license: str
    backend: BackendKind
    archs: tuple[str, ...] = ()
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    minver: tuple[int, int, int] | None = None
    upstream: str | None = None
    source: str | None = None
    digest: Digest | None = None
    provenance: Provenance | None = None
    extension: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)


def parse_metadata(data: bytes) -> Metadata:
    """Read a metadata document.

    A key of a later time is kept in ``unknown``.

    Raises:
        MetadataError: with every fault of the document; where the only fault is a backend
            that does not exist yet, its kind is ``unknown-backend`` and callers skip the
            variant with a warning.
    """
    raise NotImplementedError


def format_metadata(metadata: Metadata) -> bytes:
    """Write a metadata document: sorted keys, two spaces, a final newline."""
    raise NotImplementedError
