"""Records of what is up to date: for each variant, what it was built from and what it became."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from kernel_builder.environment import identify_environment
from kernel_builder.planned import VariantBuild
from kernel_builder.proof import without_proof
from kernel_builder.settings import Settings
from kernel_spec.digest import variant_digest
from kernel_spec.document import UNREADABLE
from kernel_spec.metadata import FILE_NAME
from kernel_spec.provenance import Provenance
from kernel_spec.whole_file import write_whole

# Raise it when the same inputs would give another variant.
GENERATOR = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What a variant was built from, and what it became.

    Attributes:
        inputs: the fingerprint of everything that went in.
        digest: the digest of the whole variant.
    """

    inputs: str
    digest: str


def fingerprint(build: VariantBuild, provenance: Provenance, settings: Settings) -> str:
    """Hash everything that a variant is made of.

    The namespace of the ops (``build.op_id``) stands for the bytes of all sources, which are not
    read again.

    Raises:
        ToolchainError: what it is built with is not there.
    """
    facts = [
        str(GENERATOR),
        repr(build),
        repr(provenance),
        identify_builder(),
        identify_environment(build, settings),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


@cache
def identify_builder() -> str:
    """Return a text that changes with the builder's own files, which decide flags and checks."""
    root = Path(__file__).parent
    facts = []
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            status = path.stat()
            facts.append(f"{path.relative_to(root)}:{status.st_size}:{status.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def digest_directory(directory: Path) -> tuple[str, int]:
    """Hash every file of a variant, whatever its name, as the build wrote it.

    What the gate adds to ``metadata.json`` is left out: it proves a variant and does not change it.

    Returns:
        The digest, and the size of all files in bytes.
    """
    files = []
    for path in sorted(directory.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        data = path.read_bytes()
        name = path.relative_to(directory).as_posix()
        if name == FILE_NAME:
            data = without_proof(data)
        files.append((name, len(data), hashlib.sha256(data).hexdigest()))
    return variant_digest(files), sum(size for _, size, _ in files)


def find_record(place: Path) -> Record | None:
    """Read a record; None where there is none that can be read."""
    try:
        document = json.loads(place.read_text())
        return Record(inputs=str(document["inputs"]), digest=str(document["digest"]))
    except UNREADABLE:
        return None


def write_record(place: Path, record: Record) -> None:
    """Write a record, whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, json.dumps(asdict(record)).encode(), lasting=False)
