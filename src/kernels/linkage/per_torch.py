"""The per-torch libraries among the files of a variant, and the one for the torch that runs here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from kernel_spec.per_torch import parse_per_torch
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor


def find_per_torch(files: Iterable[str]) -> Mapping[str, MajorMinor]:
    """Return the per-torch libraries of a variant and the release of torch that each is for.

    A library of such a name that has no main one beside it is none: whatever loads it needs it.

    Args:
        files: the POSIX paths of the variant's files.
    """
    libraries = [PurePosixPath(path) for path in files if path.endswith(".so")]
    releases = {path: parse_per_torch(path.name) for path in libraries}
    mains = {_id_of(path) for path, release in releases.items() if release is None}
    return {
        str(path): release
        for path, release in sorted(releases.items())
        if release is not None and _id_of(path) in mains
    }


def find_for_torch(files: Iterable[str], torch: TorchBuild | None) -> str | None:
    """Return the per-torch library that a kernel loads under a torch; None: there is none for it.

    Args:
        files: the POSIX paths of the variant's files.
        torch: the installed one.
    """
    if torch is None or torch.prerelease:
        return None
    libraries = find_per_torch(files).items()
    return next((path for path, release in libraries if release == torch.release), None)


def _id_of(library: PurePosixPath) -> str:
    """Return the folder and the op id that a library's path begins with."""
    return str(library.with_name(library.name.partition(".")[0]))
