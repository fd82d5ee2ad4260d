"""The check of a whole variant: every rule, every finding; what cannot be read is a finding too."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import assert_never

from kernel_builder.check.device_code import check_device_code
from kernel_builder.check.finding import Finding
from kernel_builder.check.glibc import check_symbol_versions
from kernel_builder.check.layout import check_entry, check_layout, is_per_torch, library_name
from kernel_builder.check.linkage import check_linkage, check_segments
from kernel_builder.check.ops import check_op_registration
from kernel_builder.check.python_abi import check_python_abi
from kernel_builder.check.subject import SharedLibrary, Subject, is_of_tvm_ffi
from kernel_builder.check.torch_abi import check_full_abi, check_stable_abi, is_of_cuda
from kernel_builder.check.tvm_ffi import check_tvm_ffi
from kernel_builder.errors import ProjectError
from kernel_builder.settings import Settings, read_settings
from kernel_builder.toolchain.exports import read_exports
from kernel_builder.toolchain.torch import find_torch, read_torch
from kernel_builder.toolchain.torch_headers import read_pinned_exports
from kernel_builder.toolchain.torch_releases import find_release
from kernel_spec.backend import BackendKind
from kernel_spec.binary import read_elf
from kernel_spec.errors import BinaryFormatError, MetadataError, VariantNameError
from kernel_spec.framework import Torch, TorchStableAbi, TvmFfi
from kernel_spec.metadata import FILE_NAME, parse_metadata
from kernel_spec.per_torch import parse_per_torch
from kernel_spec.variant import ArchVariant, parse_variant
from kernel_spec.version import MajorMinor


def find_variants(directory: Path) -> tuple[Path, ...]:
    """Find the variants that a path means: itself, those in it, or those in its ``build``.

    Raises:
        ProjectError: there are none.
    """
    if (directory / FILE_NAME).is_file():
        return (directory,)
    for root in (directory / "build", directory):
        found = tuple(sorted(path.parent for path in root.glob(f"*/{FILE_NAME}")))
        if found:
            return found
    raise ProjectError(
        f"{directory}: no variant there: expected {FILE_NAME}, */{FILE_NAME} or "
        f"build/*/{FILE_NAME}; build the project first: kernel-builder build {directory}"
    )


def check_variant(directory: Path, *, settings: Settings | None = None) -> tuple[Finding, ...]:
    """Check a variant against every rule.

    Args:
        directory: the directory, whose name is the name of the variant; it may come from any
            builder.
        settings: where the lists of torch's symbols are kept; None: read the environment.

    Returns:
        Every finding; empty where the variant keeps all rules.
    """
    return tuple(_check(directory, settings or read_settings()))


def _check(directory: Path, settings: Settings) -> Iterator[Finding]:
    subject = _read_subject(directory)
    if isinstance(subject, Finding):
        yield subject
        return
    try:
        yield from _check_subject(subject, settings)
    except OSError as err:
        place = Path(err.filename) if err.filename else directory
        inside = place.is_relative_to(directory)
        yield Finding(
            file=str(place.relative_to(directory)) if inside else str(place),
            rule="unreadable",
            message=f"it cannot be read ({err.strerror}), so nothing of it is proved",
            fix="make it readable for this user",
        )


def _check_subject(subject: Subject, settings: Settings) -> Iterator[Finding]:
    directory = subject.directory
    yield from check_layout(subject)
    yield from check_op_registration(subject)
    name = library_name(subject)
    if name is None or not (directory / name).is_file():
        return
    yield from _check_parts(subject, settings)
    library = _read_library(directory, name)
    if isinstance(library, Finding):
        yield library
        return
    yield from _check_library(library, subject, settings)
    yield from check_device_code(library, subject)


def _check_parts(subject: Subject, settings: Settings) -> Iterator[Finding]:
    """Check the per-torch libraries, each against the torch that it is for."""
    for path in sorted(subject.directory.glob("*.so")):
        release = parse_per_torch(path.name)
        if release is None or not is_per_torch(subject, path.name):
            continue
        library = _read_library(subject.directory, path.name)
        if isinstance(library, Finding):
            yield library
            continue
        yield from check_linkage(library, subject)
        yield from check_segments(library, path)
        yield from check_symbol_versions(library)
        yield from check_python_abi(library)
        yield from _check_names(library, release, subject.metadata.backend, settings)


def _check_names(
    library: SharedLibrary, release: MajorMinor, backend: BackendKind, settings: Settings
) -> Iterator[Finding]:
    """Look up the symbols of a per-torch library in its release, as the pinned wheel has it.

    The installed torch of that release may be built for other devices, so it counts where the
    pinned one is not here.
    """
    pinned = _find_pinned(release, library.facts.machine, settings)
    if pinned is None:
        exports = _find_installed(release, settings)
        yield from check_full_abi(library, exports, backend)
    elif backend is BackendKind.CUDA:
        yield from check_full_abi(library, pinned)
    else:
        # The pinned wheel is for CUDA; the torch of this variant need not be.
        yield from check_full_abi(library, {name for name in pinned if not is_of_cuda(name)})


def _read_library(directory: Path, name: str) -> SharedLibrary | Finding:
    try:
        return SharedLibrary(file=name, facts=read_elf(directory / name))
    except BinaryFormatError as err:
        return Finding(
            file=name,
            rule="unreadable",
            message=f"the library cannot be read, so nothing of it is proved: {err}",
            fix="build the variant again",
        )


def _read_subject(directory: Path) -> Subject | Finding:
    try:
        variant = parse_variant(directory.name)
    except VariantNameError as err:
        return Finding(file=".", rule="layout", message=str(err), fix="name it as a variant")
    place = directory / FILE_NAME
    try:
        metadata = parse_metadata(place.read_bytes())
    except (MetadataError, OSError) as err:
        return Finding(
            file=FILE_NAME,
            rule="layout",
            message=f"it cannot be read: {' '.join(str(err).split())}",
            fix="build the variant with kernel-builder",
        )
    return Subject(directory=directory, variant=variant, metadata=metadata)


def _check_library(
    library: SharedLibrary, subject: Subject, settings: Settings
) -> Iterator[Finding]:
    yield from check_linkage(library, subject)
    yield from check_segments(library, subject.directory / library.file)
    yield from check_symbol_versions(library)
    if not is_of_tvm_ffi(subject):
        yield from check_python_abi(library)
    if not isinstance(subject.variant, ArchVariant):
        return
    match subject.variant.framework:
        case TorchStableAbi(version=version):
            yield from check_entry(library, subject)
            yield from check_stable_abi(library, version)
        case Torch() as framework:
            yield from check_entry(library, subject)
            exports = _find_exports(framework.version, subject, settings)
            yield from check_full_abi(library, exports, subject.metadata.backend)
        case TvmFfi():
            yield from check_tvm_ffi(library)
        case other:
            assert_never(other)


def _find_exports(release: MajorMinor, subject: Subject, settings: Settings) -> Set[str] | None:
    """Return what a torch of a release defines: the installed one, or what is here of a pinned one.

    The pinned ones are for CUDA, so of a torch for another device they do not know all.
    """
    if (exports := _find_installed(release, settings)) is not None:
        return exports
    if subject.metadata.backend not in (BackendKind.CPU, BackendKind.CUDA):
        return None
    assert isinstance(subject.variant, ArchVariant)
    pinned = _find_pinned(release, subject.variant.cpu, settings)
    if pinned is None or subject.metadata.backend is BackendKind.CUDA:
        return pinned
    return {name for name in pinned if not is_of_cuda(name)}


def _find_installed(release: MajorMinor, settings: Settings) -> Set[str] | None:
    """Return what the installed torch defines, where it is of a release."""
    torch = find_torch()
    if torch is None or torch.build.release != release or torch.build.prerelease:
        return None
    return read_exports(torch, settings.cache / "exports")


def _find_pinned(release: MajorMinor, cpu: str, settings: Settings) -> Set[str] | None:
    """Return what the pinned torch of a release defines, where it is here."""
    pinned = find_release(cpu, release)
    place = None if pinned is None else settings.toolchains / pinned.key
    if place is None or not place.is_dir():
        return None
    return read_pinned_exports(read_torch(place))
