"""Turns a build variant into a wheel, for deployments that install packages and load nothing.

The wheel holds the kernel's module under its public name. What the variant was built for is in its tag,
its local version and its requirements, so that pip refuses it elsewhere. Equal variants give equal
bytes. Source: "Binary distribution format" and "Platform compatibility tags" of the Python Packaging
User Guide.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, assert_never

from kernel_spec.backend import format_backend
from kernel_spec.errors import FormatError
from kernel_spec.framework import Torch, TorchStableAbi, TvmFfi, format_requirement
from kernel_spec.names import module_name
from kernel_spec.variant import ArchVariant, NoarchVariant, Variant, parse_variant
from kernel_spec.version import parse_major_minor
from kernels._version import __version__
from kernels.python_depends import distribution_of
from kernels.store import write_whole
from kernels.variant_dir import VariantDir, find_init

_PLATFORMS = {
    "linux": "manylinux_{manylinux}_{cpu}",
    "darwin": "macosx_15_0_{cpu}",
    "windows": "win_{cpu}",
}
_CPUS = {("darwin", "aarch64"): "arm64", ("windows", "x86_64"): "amd64"}
# The first time that a zip file can hold.
_EPOCH = (1980, 1, 1, 0, 0, 0)


class WheelTags(NamedTuple):
    """What a wheel promises beyond its variant: the oldest Python and glibc.

    Attributes:
        python: major and minor, such as ``3.9``.
        manylinux: the glibc, such as ``2.28``.
    """

    python: str = "3.9"
    manylinux: str = "2.28"


def write_wheel(
    variant: VariantDir, version: str, folder: Path, tags: WheelTags, *, commit: str = ""
) -> Path:
    """Write the wheel of a variant; the file appears whole.

    Args:
        variant: the verified variant.
        version: the public version, such as ``1.1.2``.
        folder: where the wheel goes.
        tags: the oldest Python and glibc that it runs with.
        commit: what it is of, where no version says so; its first digits go into the local version.

    Returns:
        The wheel.

    Raises:
        FormatError: a kernel that needs other kernels, which no wheel can bring, or a library
            that needs a later glibc than the tags promise.
        OSError: it cannot be written.
    """
    metadata = variant.metadata
    if metadata.kernel_depends:
        needed = ", ".join(dependency.repo_id for dependency in metadata.kernel_depends)
        raise FormatError(
            f"{metadata.name} ({variant.path.name}) needs the kernels {needed}, which a wheel cannot "
            "bring: load it with get_kernel"
        )
    parsed = parse_variant(variant.path.name)
    _check_glibc(variant, tags)
    local = ".".join(filter(None, [_local_version(parsed), commit and f"g{commit[:12]}"]))
    full = f"{version}+{local}" if local else version
    # Wheel names escape what normalized names may hold.
    name = re.sub(r"[-_.]+", "_", metadata.name).lower()
    stem = f"{name}-{full}"
    tag = _tag(parsed, tags)
    files = dict(_module_files(variant))
    info = f"{stem}.dist-info"
    files[f"{info}/METADATA"] = _metadata(variant, parsed, full, tags).encode()
    files[f"{info}/WHEEL"] = _wheel(parsed, tag).encode()
    files[f"{info}/top_level.txt"] = f"{module_name(metadata.name)}\n".encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD").encode()
    path = folder / f"{stem}-{tag}.whl"
    write_whole(path, _zip(files))
    return path


def _check_glibc(variant: VariantDir, tags: WheelTags) -> None:
    """Refuse libraries that need a later glibc than the tag says; pip would install them anyway."""
    from kernel_spec.binary import newest_glibc, read_elf

    promised = parse_major_minor(tags.manylinux)
    for path in sorted(path for path in variant.sha256 if path.endswith(".so")):
        needed = newest_glibc(read_elf(variant.path / path))
        if needed is not None and needed > promised:
            raise FormatError(
                f"{variant.path.name}: {path} needs glibc {needed}, and the wheel would promise "
                f"{promised}: give --manylinux-version {needed}"
            )


def _module_files(variant: VariantDir) -> Iterator[tuple[str, bytes]]:
    root = find_init(variant).parent
    module = module_name(variant.metadata.name)
    for path in sorted(variant.sha256):
        place = variant.path / path
        below = place.relative_to(root) if place.is_relative_to(root) else Path(path)
        yield f"{module}/{below.as_posix()}", place.read_bytes()


def _local_version(variant: Variant) -> str:
    match variant:
        case NoarchVariant(backend=None):
            return ""
        case NoarchVariant(backend=backend):
            return str(backend)
        case ArchVariant(framework=framework, backend=backend):
            digits = f"{framework.version.major}{framework.version.minor}"
            match framework:
                case Torch(cxx11=cxx11):
                    tail = "" if cxx11 is None else ("cxx11" if cxx11 else "cxx98")
                    return f"torch{digits}{format_backend(backend)}{tail}"
                case TorchStableAbi():
                    return f"torchstable{digits}{format_backend(backend)}"
                case TvmFfi():
                    return f"tvmffi{digits}{format_backend(backend)}"
                case _:
                    assert_never(framework)
        case _:
            assert_never(variant)


def _tag(variant: Variant, tags: WheelTags) -> str:
    python = tags.python.replace(".", "")
    match variant:
        case NoarchVariant():
            return f"py{python}-none-any"
        case ArchVariant(cpu=cpu, os=os):
            platform = _PLATFORMS[os].format(
                manylinux=tags.manylinux.replace(".", "_"), cpu=_CPUS.get((os, cpu), cpu)
            )
            return f"cp{python}-abi3-{platform}"
        case _:
            assert_never(variant)


def _requirements(variant: VariantDir, parsed: Variant) -> Iterator[str]:
    match parsed:
        case NoarchVariant():
            yield "torch"
        case ArchVariant(framework=framework):
            yield format_requirement(framework)
        case _:
            assert_never(parsed)
    for name in variant.metadata.python_depends:
        if distribution := distribution_of(name):
            yield distribution
    yield from variant.metadata.python_requires


def _metadata(variant: VariantDir, parsed: Variant, version: str, tags: WheelTags) -> str:
    metadata = variant.metadata
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {metadata.name}",
        f"Version: {version}",
        f"Summary: The kernel {metadata.name}, build variant {variant.path.name}",
        f"License: {' '.join(metadata.license.split())}",
        f"Requires-Python: >={tags.python}",
        *(f"Requires-Dist: {requirement}" for requirement in _requirements(variant, parsed)),
    ]
    if metadata.source or metadata.upstream:
        lines.append(f"Project-URL: Source, {metadata.source or metadata.upstream}")
    return "\n".join(lines) + "\n"


def _wheel(parsed: Variant, tag: str) -> str:
    pure = "true" if isinstance(parsed, NoarchVariant) else "false"
    return f"Wheel-Version: 1.0\nGenerator: kernels {__version__}\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"


def _record(files: dict[str, bytes], itself: str) -> str:
    text = io.StringIO()
    # A path may hold a comma.
    rows = csv.writer(text, lineterminator="\n")
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.writerow([path, f"sha256={digest}", len(data)])
    rows.writerow([itself, "", ""])
    return text.getvalue()


def _zip(files: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _ordered(files):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            entry.create_system = 3
            archive.writestr(entry, files[path])
    return whole.getvalue()


def _ordered(paths: Iterable[str]) -> list[str]:
    """Order files as the format asks: what describes the wheel at its end."""
    return sorted(paths, key=lambda path: (".dist-info/" in path, path))
