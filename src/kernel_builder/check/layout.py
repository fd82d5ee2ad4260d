"""The rules of what lies in a variant: its files, its names and its digest."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from kernel_builder.check.finding import Finding
from kernel_builder.check.subject import SharedLibrary, Subject, is_of_tvm_ffi
from kernel_builder.config.model import TORCH_EXTENSION, TVM_FFI_EXTENSION
from kernel_spec.digest import compare, digest_tree
from kernel_spec.errors import IntegrityError
from kernel_spec.framework import TorchStableAbi
from kernel_spec.metadata import FILE_NAME
from kernel_spec.per_torch import format_per_torch, parse_per_torch
from kernel_spec.variant import ArchVariant

_OPS = "_ops.py"
_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll", ".pyd")
# e_machine of ELF files for GPUs: EM_CUDA and EM_AMDGPU.
_DEVICE_MACHINES = (b"\xbe\x00", b"\xe0\x00")
# Mach-O, for one CPU or for several, and archives of objects.
_OTHER_CODE = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"!<arch>\n")


def check_layout(subject: Subject) -> Iterator[Finding]:
    """Find files that are missing or too many, and names that contradict each other."""
    for name in ("__init__.py", _OPS):
        if not (subject.directory / name).is_file():
            yield Finding(
                file=name,
                rule="layout",
                message="the file is missing, and a variant is a Python package that has it",
                fix="build the variant with kernel-builder"
                if name == _OPS
                else f"add it under {_extension(subject)}/<module>",
            )
    yield from _check_namespace(subject)
    yield from _check_files(subject)
    yield from _check_modes(subject)
    yield from _check_backend(subject)
    yield from _check_digest(subject)


def library_name(subject: Subject) -> str | None:
    """Return the name that the library of a variant must have; None where it has none."""
    if not isinstance(subject.variant, ArchVariant):
        return None
    return f"{subject.metadata.id}{'' if is_of_tvm_ffi(subject) else '.abi3'}.so"


def is_per_torch(subject: Subject, name: str) -> bool:
    """Say whether a file of a variant is one of its per-torch libraries, by its name."""
    variant, release = subject.variant, parse_per_torch(name)
    if release is None or not isinstance(variant, ArchVariant):
        return False
    own = isinstance(variant.framework, TorchStableAbi) and variant.framework.version <= release
    return own and name == format_per_torch(str(subject.metadata.id), release)


def _extension(subject: Subject) -> str:
    return TVM_FFI_EXTENSION if is_of_tvm_ffi(subject) else TORCH_EXTENSION


def check_entry(library: SharedLibrary, subject: Subject) -> Iterator[Finding]:
    """Find that Python cannot import the library under its name."""
    entry = f"PyInit_{subject.metadata.id}"
    if not any(symbol.defined and symbol.name == entry for symbol in library.facts.symbols):
        yield Finding(
            file=library.file,
            rule="layout",
            symbol=entry,
            message="the library does not define it, so Python cannot import it",
            fix="write REGISTER_EXTENSION(TORCH_EXTENSION_NAME) in torch_binding.cpp",
        )


def _check_files(subject: Subject) -> Iterator[Finding]:
    expected = library_name(subject)
    if expected is not None and not (subject.directory / expected).is_file():
        yield Finding(
            file=expected,
            rule="layout",
            message="the library is missing; its name is the id of metadata.json",
            fix="build the variant with kernel-builder",
        )
    for path in sorted(subject.directory.rglob("*")):
        name = path.relative_to(subject.directory).as_posix()
        if path.is_symlink():
            yield _stray(name, "a symbolic link does not survive publishing", "copy the file")
        elif path.is_dir():
            continue
        elif path.suffix == ".pyc" or "__pycache__" in path.parts:
            yield _stray(name, "bytecode is never part of a variant", "remove it")
        elif name.rpartition("/")[2].startswith("."):
            yield _stray(name, "a hidden file is never part of a variant", "remove it")
        elif name == expected or is_per_torch(subject, name):
            continue
        elif name.endswith(_LIBRARY_SUFFIXES) or _is_machine_code(path):
            yield _stray(
                name,
                f"a variant has one library, {expected}" if expected else "the variant is noarch",
                f"remove it from {_extension(subject)}, or link its code into the kernel",
            )


def _check_modes(subject: Subject) -> Iterator[Finding]:
    """Find files that give rights away, that anybody may change, or that are two names of one file."""
    names: dict[tuple[int, int], str] = {}
    for path in [subject.directory, *sorted(subject.directory.rglob("*"))]:
        if path.is_symlink():
            continue
        name = path.relative_to(subject.directory).as_posix()
        found = path.stat()
        if found.st_mode & (stat.S_ISUID | stat.S_ISGID) and path.is_file():
            yield _mode(name, "it runs with the rights of its owner (setuid or setgid)", "ug-s")
        if found.st_mode & stat.S_IWOTH:
            yield _mode(name, "everybody may change it", "o-w")
        first = names.setdefault((found.st_dev, found.st_ino), name)
        if first != name:
            message = f"it is the same file as {first}: who writes into one changes both"
            yield Finding(file=name, rule="file-mode", message=message, fix="copy the file")


def _check_namespace(subject: Subject) -> Iterator[Finding]:
    """Find that ``_ops.py`` reaches for the ops of another kernel, or of another build of this one."""
    place = subject.directory / _OPS
    if not isinstance(subject.variant, ArchVariant) or not place.is_file():
        return
    if subject.metadata.id not in place.read_text(encoding="utf-8", errors="replace"):
        yield Finding(
            file=_OPS,
            rule="layout",
            symbol=subject.metadata.id,
            message="the file does not name this id of metadata.json, so it has other ops or none",
            fix="build the variant with kernel-builder",
        )


def _mode(file: str, message: str, change: str) -> Finding:
    return Finding(file=file, rule="file-mode", message=message, fix=f"chmod {change} {file}")


def _is_machine_code(place: Path) -> bool:
    """Say whether a file holds code for a CPU, whatever its name is.

    Code for a GPU, which Python loads itself, is data.
    """
    if not place.is_file():
        return False
    with place.open("rb") as stream:
        head = stream.read(20)
    if head.startswith(b"\x7fELF"):
        return head[18:20] not in _DEVICE_MACHINES
    return head.startswith(_OTHER_CODE)


def _check_backend(subject: Subject) -> Iterator[Finding]:
    named = subject.variant.kind
    if named is not None and named is not subject.metadata.backend:
        yield Finding(
            file=FILE_NAME,
            rule="layout",
            symbol=subject.metadata.backend.value,
            message=f"the name of the variant says {named.value}",
            fix="build the variant with kernel-builder",
        )


def _check_digest(subject: Subject) -> Iterator[Finding]:
    digest = subject.metadata.digest
    if digest is None:
        yield Finding(
            file=FILE_NAME,
            rule="digest",
            message="it has no digest, so nobody can tell whether the files are whole",
            fix="build the variant with kernel-builder",
        )
        return
    try:
        actual = digest_tree(subject.directory, digest.algorithm)
    except IntegrityError as err:
        yield Finding(file=".", rule="digest", message=str(err), fix="remove it")
        return
    for violation in compare(digest, actual):
        yield Finding(
            file=violation.path,
            rule="digest",
            message=f"the file is not as metadata.json says: {violation.kind.value}",
            fix="build the variant again",
        )


def _stray(file: str, message: str, fix: str) -> Finding:
    return Finding(file=file, rule="stray-file", message=message, fix=fix)
