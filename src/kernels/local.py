"""Kernels on disk: finds the variants at a path and verifies the one that fits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kernel_spec.backend import BackendKind
from kernel_spec.compat import Accepted, Decision, Reason, Rejected, decide
from kernel_spec.errors import MetadataError, VariantNameError
from kernel_spec.metadata import FILE_NAME
from kernel_spec.variant import UnknownVariant, parse_variant
from kernels.errors import NotAKernelError, NoVariantError
from kernels.fit import Judge
from kernels.hub import BUILD_FOLDER
from kernels.system import describe, detect
from kernels.variant_dir import VariantDir, read_variant
from kernels.verify import scan

# Variants that this process has verified, and what their files looked like then.
_verified: dict[Path, tuple[tuple[tuple[str, int, int], ...], VariantDir]] = {}


def choose_local(path: Path, *, backend: BackendKind | None, check_arch: bool = True) -> VariantDir:
    """Choose the best variant at a path and verify it against its own metadata.

    Args:
        path: a project folder, its ``build/``, or one variant.
        backend: choose for this backend instead of the system's.
        check_arch: pass over variants without code for a visible device.

    Raises:
        ClientTooOldError, DeviceError, NoVariantError: nothing there fits this system.
        IntegrityError: its files are not those that its metadata promises.
        MetadataError: its metadata cannot be used.
        NotAKernelError: there is no kernel at the path.
    """
    places = find_variants(path)
    if places is None:
        variant = verify_local(path)
        if backend is not None and variant.metadata.backend is not backend:
            reason = Reason("backend", f"is for {variant.metadata.backend}, not for {backend}")
            raise NoVariantError(
                str(path),
                describe(detect()),
                [Rejected(path.name, UnknownVariant(path.name), (reason,))],
            )
        return variant
    judge = Judge(str(path), detect(), list(places), backend)
    found = find_fitting(judge, places, check_arch=check_arch)
    if found is None:
        raise judge.error(f"To see what to do about it: kernels doctor {path}")
    return found


def find_fitting(
    judge: Judge, places: Mapping[str, Path], *, check_arch: bool = True
) -> VariantDir | None:
    """Return the best variant that fits by its name, its metadata and its libraries; the judge keeps why not."""
    for accepted in judge.fitting:
        place = places[accepted.name]
        try:
            variant = verify_local(place)
        except MetadataError as err:
            judge.reject_or_raise(accepted, (place / FILE_NAME).read_bytes(), err)
            continue
        if judge.accepts(accepted, variant.metadata, check_arch=check_arch, on_disk=variant):
            return variant
    return None


def decide_local(path: Path, *, backend: BackendKind | None) -> tuple[Decision, ...]:
    """Judge every variant at a path by its name; a path that is one unnamed variant fits.

    Raises:
        NotAKernelError: there is no kernel at the path.
    """
    places = find_variants(path)
    if places is None:
        return (Accepted(path.name, parse_variant("torch-universal")),)
    return decide(detect(), places, backend=backend)


def find_variants(path: Path) -> dict[str, Path] | None:
    """Return the variant directories at a path by name; None where the path itself is one.

    A path that is a variant and is named like one is returned under its name, so that it is
    judged like any other.

    Raises:
        NotAKernelError: the path is not there, cannot be read, or holds no variant.
    """
    try:
        return _list_variants(path)
    except PermissionError as err:
        raise NotAKernelError(
            path,
            f"There is no kernel at {path} that this user can read: {err.filename}: {err.strerror}. "
            "Let this user read it, or give another path.",
        ) from None


def variants_at(path: Path) -> dict[str, Path]:
    """Return the variant directories at a path by name, also of one that is not named like a variant.

    Raises:
        NotAKernelError: as :func:`find_variants`.
    """
    return find_variants(path) or {path.name: path}


def _list_variants(path: Path) -> dict[str, Path] | None:
    if not path.is_dir():
        what = "is not a directory" if path.exists() else "does not exist"
        raise NotAKernelError(
            path,
            f"There is no kernel at {path}: it {what}. "
            "Expected a kernel project, its build folder, or one build variant.",
        )
    if (path / FILE_NAME).is_file():
        return {path.name: path} if _is_variant_name(path.name) else None
    for folder in (path, path / BUILD_FOLDER):
        if not folder.is_dir():
            continue
        found = {
            entry.name: entry
            for entry in sorted(folder.iterdir())
            if entry.is_dir() and (_is_variant_name(entry.name) or (entry / FILE_NAME).is_file())
        }
        if found:
            return found
    raise NotAKernelError(
        path,
        f"There is no kernel at {path}: neither it nor its folder {BUILD_FOLDER!r} holds a build "
        "variant (a directory such as torch-cpu). Build the kernel first: kernel-builder build.",
    )


def verify_local(directory: Path) -> VariantDir:
    """Verify a variant directory; a repeat looks only at sizes and times of its files.

    Raises:
        As :func:`kernels.variant_dir.read_variant`.
    """
    stamp = stamp_of(directory)
    known = _verified.get(directory)
    if known is not None and known[0] == stamp:
        return known[1]
    variant = read_variant(directory)
    _verified[directory] = (stamp, variant)
    return variant


def stamp_of(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Return path, size and time of change of every file of a variant; empty where it is gone."""
    try:
        return tuple(
            sorted((path, facts.st_size, facts.st_mtime_ns) for path, facts in scan(directory))
        )
    except OSError:
        return ()


def quick_stamp(directory: Path) -> tuple[int, ...]:
    """Return a value that changes when a variant is built anew; two ``stat`` calls."""
    stamp: list[int] = []
    for path in (directory, directory / FILE_NAME):
        try:
            facts = os.stat(path)  # noqa: PTH116 - called on every repeat
        except OSError:
            continue
        stamp += (facts.st_mtime_ns, facts.st_size, facts.st_ino)
    return tuple(stamp)


def _is_variant_name(name: str) -> bool:
    try:
        parse_variant(name)
    except VariantNameError:
        return False
    return True
