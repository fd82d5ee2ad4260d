"""The object cache: objects by everything that they were made from, shared by all projects.

A record names the files that the compiler read. A file of the project is compared by its bytes,
one of the system or of torch by its size and time. The namespace of the ops, which changes with
every source, counts only for objects whose sources mention it, so an edit of one file does not
compile the others again; for most of those it is a draft, which does not change.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_spec.document import UNREADABLE
from kernel_spec.whole_file import write_whole

# Raise it when equal keys might mean other objects.
GENERATOR = 2

# The size of all objects in bytes, beyond which the oldest go.
LIMIT = 4_000_000_000

_NAMESPACES = (b"TORCH_EXTENSION_NAME", b"TVM_FFI_EXTENSION_NAME")
_KEPT_RECORDS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectKey:
    """What is known of an object before anything is compiled.

    Attributes:
        toolchain: the identity of the compiler.
        flags: its arguments, without those that only name the namespace or a place.
        source: the path of the source in the project.
        files: the paths of all files of the project that may be read, since a new file can take
            the place of another.
        namespace: the namespace of the ops.
    """

    toolchain: str
    flags: tuple[str, ...]
    source: str
    files: tuple[str, ...]
    namespace: str

    @property
    def name(self) -> str:
        """The name of its records: a hash of all but the namespace."""
        facts = [GENERATOR, self.toolchain, self.flags, self.source, self.files]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """The object cache at a directory."""

    root: Path


def find_object(cache: ObjectCache, key: ObjectKey, *, stage: Path) -> Path | None:
    """Find the object that compiling now would give, or None.

    Args:
        cache: where to look.
        key: what is to be compiled.
        stage: the directory that the compiler runs in.
    """
    found = find_objects(cache, key, stage=stage)
    return next((path for name, path in found if name in (None, key.namespace)), None)


def find_objects(
    cache: ObjectCache, key: ObjectKey, *, stage: Path
) -> Iterator[tuple[str | None, Path]]:
    """Find all objects that differ from that of a key in their namespace at most.

    Args:
        cache: where to look.
        key: what is to be compiled.
        stage: the directory that the compiler runs in.

    Yields:
        The namespace, None where the sources do not mention it, and where the object lies.
    """
    for record in _read_records(cache, key):
        if all(_identify(stage, path) == found for path, found in record["files"].items()):
            path = _object_path(cache, record["object"])
            # A machine that went down while it wrote may have left half an object.
            if path.is_file() and _hash(path) == record["object"]:
                os.utime(path)
                yield record.get("namespace"), path


def store_object(
    cache: ObjectCache, key: ObjectKey, *, stage: Path, built: Path, depfile: Path
) -> None:
    """Keep an object that was compiled.

    Args:
        cache: where to.
        key: what it was compiled from.
        stage: the directory that the compiler ran in.
        built: the object.
        depfile: the files that the compiler read, as it lists them for make.
    """
    files: dict[str, str] = {}
    mentioned = False
    for path in parse_depfile(depfile.read_text(encoding="utf-8", errors="surrogateescape")):
        identity = _identify(stage, path)
        if identity is None:
            return
        files[path] = identity
        if not mentioned:
            content = (stage / path).read_bytes()
            mentioned = any(name in content for name in _NAMESPACES)
    data = built.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    record = {
        "namespace": key.namespace if mentioned else None,
        "files": files,
        "object": digest,
    }
    others = [each for each in _read_records(cache, key) if each != record]
    _write(_object_path(cache, digest), data)
    text = json.dumps([record, *others[: _KEPT_RECORDS - 1]], sort_keys=True)
    _write(_record_path(cache, key), text.encode())


def prune_objects(cache: ObjectCache, *, limit: int = LIMIT) -> None:
    """Remove the objects that were not used for the longest time, down to a size in bytes.

    A record whose object is gone counts as none.
    """
    found = []
    for path in (cache.root / "objects").glob("*/*.o"):
        with suppress(FileNotFoundError):
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    size = sum(each for _, each, _ in found)
    for _, each, path in sorted(found):
        if size <= limit:
            return
        path.unlink(missing_ok=True)
        size -= each


def parse_depfile(text: str) -> tuple[str, ...]:
    """Read the prerequisites of a make rule as g++ and clang write it, each once, in order."""
    rule = text.replace("\\\n", " ").split("\n", 1)[0]
    _, _, prerequisites = rule.partition(": ")
    words = re.findall(r"(?:\\.|\$\$|[^\s\\$])+", prerequisites)
    paths = [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]
    return tuple(dict.fromkeys(paths))


def _identify(stage: Path, path: str) -> str | None:
    place = stage / path
    try:
        if Path(path).is_absolute():
            status = place.stat()
            return f"{status.st_size}:{status.st_mtime_ns}"
        return _hash(place)
    except OSError:
        return None


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_records(cache: ObjectCache, key: ObjectKey) -> Sequence[dict[str, Any]]:
    try:
        records = json.loads(_record_path(cache, key).read_text())
        return [
            each
            for each in records
            if isinstance(each["files"], dict) and isinstance(each["object"], str)
        ]
    except UNREADABLE:
        return []


def _record_path(cache: ObjectCache, key: ObjectKey) -> Path:
    return cache.root / "records" / key.name[:2] / f"{key.name}.json"


def _object_path(cache: ObjectCache, digest: str) -> Path:
    return cache.root / "objects" / digest[:2] / f"{digest}.o"


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data, lasting=False)
