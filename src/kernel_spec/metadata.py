"""``metadata.json``: what a variant says of itself."""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_spec.backend import BackendKind
from kernel_spec.digest import ALGORITHMS, Digest
from kernel_spec.document import Reader, join, read_plain, write_json
from kernel_spec.errors import MetadataError
from kernel_spec.git_url import normalize_git_url
from kernel_spec.names import KERNEL_NAME, path_fault, repo_id_fault
from kernel_spec.provenance import Provenance, format_provenance, read_provenance

FILE_NAME = "metadata.json"

# Everything that the published format does not know sits under this one key.
EXTENSION_KEY = "kernels-ext"
# Under it: packages that the names of python-depends do not reach, with their versions.
PYTHON_REQUIRES = "python-requires"

_KNOWN_KEYS = frozenset(
    {
        "name",
        "id",
        "version",
        "license",
        "backend",
        "python-depends",
        "kernel-depends",
        "kernels-minver",
        "upstream",
        "source",
        "digest",
        "provenance",
        EXTENSION_KEY,
    }
)
_MINVER = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelDependency:
    """A kernel that this one needs: by version (branch ``vN``) or by revision."""

    repo_id: str
    version: int | None = None
    revision: str | None = None


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

    @classmethod
    def from_bytes(cls, data: bytes) -> Metadata:
        """Read a document, by the name that the published client has for it.

        Raises:
            MetadataError: as :func:`parse_metadata`.
        """
        return parse_metadata(data)

    @classmethod
    def read_from_file(cls, path: str | Path) -> Metadata:
        """Read a file, by the name that the published client has for it.

        Raises:
            OSError: it cannot be read.
            MetadataError: as :func:`parse_metadata`.
        """
        return parse_metadata(read_plain(Path(path)))

    @property
    def kernels_minver(self) -> str | None:
        """What :attr:`minver` is in the document: ``X.Y.Z``."""
        return None if self.minver is None else ".".join(map(str, self.minver))

    @property
    def python_requires(self) -> tuple[str, ...]:
        """The Python packages besides, as pip reads them; what is no requirement of an index goes."""
        listed = self.extension.get(PYTHON_REQUIRES)
        texts = listed if isinstance(listed, list) else []
        return tuple(text for text in texts if isinstance(text, str) and _is_requirement(text))


def _is_requirement(text: str) -> bool:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text).url is None
    except InvalidRequirement:
        return False


def parse_metadata(data: bytes) -> Metadata:
    """Read a metadata document.

    A key of a later time is kept in ``unknown``; inside ``backend``, ``digest`` and
    ``provenance`` such a key is left out.

    Raises:
        MetadataError: with every fault of the document; where the only fault is a backend
            that does not exist yet, its kind is ``unknown-backend`` and callers skip the
            variant with a warning.
    """
    reader = Reader()
    document = reader.load(data)
    if (document is None and reader.faults) or not reader.check_type(document, dict, ""):
        raise MetadataError(FILE_NAME, tuple(reader.faults))
    backend, archs = _read_backend(reader, document)
    fields: dict[str, Any] = {
        "name": reader.take_checked(
            document, "name", "", _name_fault, kind="bad-name", required=True
        ),
        "id": reader.take_checked(document, "id", "", _id_fault, kind="bad-id", required=True),
        "version": reader.take_number(document, "version", "", required=True),
        "license": reader.take(document, "license", str, "", required=True),
        "backend": backend,
        "archs": archs,
        "python_depends": _read_texts(reader, document, "python-depends", "", required=True),
        "kernel_depends": _read_kernel_depends(reader, document),
        "minver": _read_minver(reader, document),
        "upstream": _read_git_url(reader, document, "upstream"),
        "source": _read_git_url(reader, document, "source"),
        "digest": _read_digest(reader, document),
        "provenance": read_provenance(reader, document),
        "extension": reader.take(document, EXTENSION_KEY, dict, "") or {},
        "unknown": {key: value for key, value in document.items() if key not in _KNOWN_KEYS},
    }
    if reader.faults:
        raise MetadataError(FILE_NAME, tuple(reader.faults))
    # Without a fault, every required field has its value.
    return Metadata(**fields)


def is_from_the_future(error: MetadataError) -> bool:
    """Say whether a backend that does not exist yet is all that is wrong with a document."""
    return all(fault.kind == "unknown-backend" for fault in error.faults)


def _name_fault(text: str) -> str | None:
    if KERNEL_NAME.fullmatch(text) is not None:
        return None
    return (
        "expected lower-case letters, digits and '-', a letter first and no '-' last, "
        f"found {text!r}"
    )


def _id_fault(text: str) -> str | None:
    return None if text.isidentifier() else f"expected a Python identifier, found {text!r}"


def _read_texts(
    reader: Reader,
    table: Mapping[str, Any],
    key: str,
    where: str,
    *,
    required: bool = False,
) -> tuple[str, ...]:
    values = reader.take(table, key, list, where, required=required) or []
    place = join(where, key)
    return tuple(
        value
        for index, value in enumerate(values)
        if reader.check_type(value, str, f"{place}[{index}]")
    )


def _read_backend(
    reader: Reader, document: Mapping[str, Any]
) -> tuple[BackendKind | None, tuple[str, ...]]:
    table = reader.take(document, "backend", dict, "", required=True)
    if table is None:
        return None, ()
    kind = reader.take(table, "type", str, "backend", required=True)
    archs = _read_texts(reader, table, "archs", "backend")
    if kind is None:
        return None, archs
    try:
        return BackendKind(kind), archs
    except ValueError:
        known = ", ".join(sorted(BackendKind))
        reader.add(
            "unknown-backend",
            "backend.type",
            f"unknown backend {kind!r}; this version knows {known}",
        )
        return None, archs


def _read_kernel_depends(
    reader: Reader, document: Mapping[str, Any]
) -> tuple[KernelDependency, ...]:
    dependencies = []
    for index, table in enumerate(reader.take(document, "kernel-depends", list, "") or []):
        where = f"kernel-depends[{index}]"
        if reader.check_type(table, dict, where):
            dependency = _read_dependency(reader, table, where)
            if dependency is not None:
                dependencies.append(dependency)
    return tuple(dependencies)


def _read_dependency(
    reader: Reader, table: Mapping[str, Any], where: str
) -> KernelDependency | None:
    """Read ``repo-id`` and one of ``version`` and ``revision``; None with faults noted."""
    before = len(reader.faults)
    repo_id = reader.take_checked(
        table, "repo-id", where, repo_id_fault, kind="bad-repo-id", required=True
    )
    version = reader.take_number(table, "version", where)
    revision = reader.take(table, "revision", str, where)
    given = [key for key in ("version", "revision") if table.get(key) is not None]
    if len(given) == 2:
        reader.add("both-given", where, "expected a version or a revision, found both")
    elif not given:
        reader.add("neither-given", where, "expected a version or a revision, found neither")
    reader.refuse_unknown(table, ("repo-id", "version", "revision"), where)
    if repo_id is None or len(reader.faults) > before:
        return None
    return KernelDependency(repo_id=repo_id, version=version, revision=revision)


def _read_minver(reader: Reader, document: Mapping[str, Any]) -> tuple[int, int, int] | None:
    text = reader.take(document, "kernels-minver", str, "")
    if text is None:
        return None
    match = _MINVER.fullmatch(text)
    if match is None:
        reader.add("bad-version", "kernels-minver", f"expected X.Y.Z in digits, found {text!r}")
        return None
    return int(match[1]), int(match[2]), int(match[3])


def _read_git_url(reader: Reader, document: Mapping[str, Any], key: str) -> str | None:
    text = reader.take(document, key, str, "")
    if text is None:
        return None
    url = normalize_git_url(text)
    if url is None:
        reader.add(
            "bad-url", key, f"expected a git URL over http, https, ssh or git, found {text!r}"
        )
    return url


def _read_digest(reader: Reader, document: Mapping[str, Any]) -> Digest | None:
    table = reader.take(document, "digest", dict, "")
    if table is None:
        return None
    algorithm = reader.take(table, "algorithm", str, "digest", required=True)
    length = ALGORITHMS.get(algorithm)
    if algorithm is not None and length is None:
        known = " or ".join(ALGORITHMS)
        reader.add("bad-value", "digest.algorithm", f"expected {known}, found {algorithm!r}")
    files: Mapping[str, Any] = reader.take(table, "files", dict, "digest", required=True) or {}
    for path, text in files.items():
        fault = path_fault(path)
        if fault is not None:
            reader.add("bad-path", "digest.files", f"unsafe path: {fault}", path)
        if reader.check_type(text, str, "digest.files", path):
            fault = _hash_fault(text, length)
            if fault is not None:
                reader.add("bad-digest", "digest.files", fault, path)
    return Digest(algorithm, dict(sorted(files.items())))


def _hash_fault(text: str, length: int | None) -> str | None:
    try:
        raw = a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        raw = b""
    if not raw or b2a_base64(raw, newline=False).decode("ascii") != text:
        return f"expected standard base64, found {text!r}"
    if length is not None and len(raw) != length:
        return f"expected a hash of {length} bytes, found {len(raw)} bytes"
    return None


def format_metadata(metadata: Metadata) -> bytes:
    """Write a metadata document: sorted keys, two spaces, a final newline."""
    backend: dict[str, Any] = {"type": metadata.backend.value}
    if metadata.archs:
        backend["archs"] = list(metadata.archs)
    document: dict[str, Any] = {
        **metadata.unknown,
        "name": metadata.name,
        "id": metadata.id,
        "version": metadata.version,
        "license": metadata.license,
        "backend": backend,
        "python-depends": list(metadata.python_depends),
    }
    if metadata.kernel_depends:
        document["kernel-depends"] = [
            _format_dependency(dependency) for dependency in metadata.kernel_depends
        ]
    if metadata.minver is not None:
        document["kernels-minver"] = ".".join(map(str, metadata.minver))
    if metadata.upstream is not None:
        document["upstream"] = metadata.upstream
    if metadata.source is not None:
        document["source"] = metadata.source
    if metadata.digest is not None:
        document["digest"] = {
            "algorithm": metadata.digest.algorithm,
            "files": dict(metadata.digest.files),
        }
    if metadata.provenance is not None:
        document["provenance"] = format_provenance(metadata.provenance)
    if metadata.extension:
        document[EXTENSION_KEY] = dict(metadata.extension)
    return write_json(document)


def _format_dependency(dependency: KernelDependency) -> dict[str, Any]:
    fields = {
        "repo-id": dependency.repo_id,
        "version": dependency.version,
        "revision": dependency.revision,
    }
    return {key: value for key, value in fields.items() if value is not None}
