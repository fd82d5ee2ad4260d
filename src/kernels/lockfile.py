"""``kernels.lock`` files: reads one, finds an entry in it, and finds the lock of the calling code.

A library loads kernels by the lock that its author made, whoever imports it. Its lock is

* in the metadata of the installed distribution that the calling module belongs to
  (``<name>.dist-info/kernels.lock``; :mod:`kernels.egg_info` puts it there), or else
* beside the ``pyproject.toml`` above the calling file, or beside that file where there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from kernel_spec.document import UNREADABLE, read_plain
from kernel_spec.errors import LockError
from kernel_spec.lock import FILE_NAME, Lock, LockedKernel, parse_lock
from kernel_spec.names import parse_repo_id
from kernels.errors import NotLockedError
from kernels.revision import KernelRef

_SITES = frozenset({"site-packages", "dist-packages"})


class LockFile(NamedTuple):
    """A lock file that was read."""

    path: Path
    lock: Lock


def read_lock(path: Path, *, asked_for: str = "") -> LockFile:
    """Read a lock file.

    Args:
        path: the file.
        asked_for: the kernel that it is read for, for the message.

    Raises:
        LockError: with every fault of the file.
        NotLockedError: there is no such file, or it cannot be read.
    """
    try:
        data = read_plain(path)
    except OSError as err:
        raise NotLockedError(
            asked_for,
            f"The lock file {path} cannot be read: {err.strerror or err}. "
            "Write it with: kernels lock",
        ) from None
    try:
        return LockFile(path, parse_lock(data))
    except LockError as err:
        raise LockError(str(path), err.faults) from None


def get_entry(lockfile: LockFile, ref: KernelRef) -> LockedKernel:
    """Return what a lock says of a request.

    An entry answers the request that it was made for, its own commit, and the bare name where it is
    the only one of that name, or the one with the highest version. An entry of the oldest form
    answers every request for its repository.

    Raises:
        NotLockedError: naming what is locked of that repository.
    """
    entries = [entry for entry in lockfile.lock.kernels if entry.repo_id == str(ref.repo)]
    if found := [entry for entry in entries if _answers(entry, ref)]:
        return max(found, key=lambda entry: -1 if entry.version is None else entry.version)
    named = "; ".join(describe_entry(entry) for entry in entries)
    raise NotLockedError(
        str(ref.repo),
        f"{ref} is not locked: {lockfile.path} has {named or f'no entry for {ref.repo}'}. "
        "Name it in [tool.kernels.dependencies] of pyproject.toml and run: kernels lock",
    )


def ref_of(entry: LockedKernel) -> KernelRef:
    """Return the request that an entry was made for."""
    return KernelRef(
        parse_repo_id(entry.repo_id), entry.version, entry.revision, entry.version_range
    )


def pinned_ref(entry: LockedKernel) -> KernelRef:
    """Return the request for the very commit of an entry."""
    return KernelRef(parse_repo_id(entry.repo_id), revision=entry.commit)


def _answers(entry: LockedKernel, ref: KernelRef) -> bool:
    made_for = ref_of(entry)
    if KernelRef(ref.repo) in {ref, made_for} or ref == made_for:
        return True
    return (
        ref.revision is not None
        and len(ref.revision) >= 7
        and entry.commit.startswith(ref.revision)
    )


def describe_entry(entry: LockedKernel) -> str:
    """Say in a few words what an entry locks."""
    return f"{ref_of(entry)} (commit {entry.commit[:12]})"


def get_caller_lock(repo_id: str) -> LockFile:
    """Return the lock of the code that called into this package.

    Raises:
        LockError: with every fault of the file.
        NotLockedError: it has none; names where it was looked for.
    """
    module, file = _caller()
    places = list(_places(module, file))
    for path in places:
        if path.is_file():
            return read_lock(path, asked_for=repo_id)
    looked = ", ".join(map(str, places))
    raise NotLockedError(
        repo_id,
        f"There is no {FILE_NAME} for {module}, which asks for {repo_id} (looked for {looked}). "
        "Run 'kernels lock' in the project of that module; an installed package carries its lock "
        'if "kernels" is in build-system.requires. KERNELS_LOCK or lockfile= names another file.',
    )


def _caller() -> tuple[str, Path | None]:
    """Return the name and the file of the first module on the stack that is not this package's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] != "kernels":
            if name == "__main__" and (spec := frame.f_globals.get("__spec__")) is not None:
                name = str(spec.name)  # python -m package.module
            file = frame.f_globals.get("__file__")
            return name, Path(file).absolute() if isinstance(file, str) else None
        frame = frame.f_back
    return "__main__", None


def _places(module: str, file: Path | None) -> Iterator[Path]:
    if file is None:
        yield _project_lock(Path.cwd())
        return
    site = next((above for above in file.parents if above.name in _SITES), None)
    if site is None:
        yield _project_lock(file.parent)
        return
    package = module.partition(".")[0]
    infos = [info for info in sorted(site.glob("*.dist-info")) if _owns(info, package)]
    for info in infos or [site / f"{package}-*.dist-info"]:
        yield info / FILE_NAME


def _project_lock(folder: Path) -> Path:
    """Return where the lock of the project around a folder is, or of the folder itself."""
    for above in (folder, *folder.parents):
        if (above / "pyproject.toml").is_file():
            return above / FILE_NAME
    return folder / FILE_NAME


def _owns(info: Path, package: str) -> bool:
    """Say whether an installed distribution holds a top-level package."""
    try:
        if package in (info / "top_level.txt").read_text(encoding="utf-8").split():
            return True
    except UNREADABLE:
        pass
    try:
        record = (info / "RECORD").read_text(encoding="utf-8")
    except UNREADABLE:
        return False
    return any(line.startswith((f"{package}/", f"{package}.py,")) for line in record.splitlines())
