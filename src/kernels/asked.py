"""Reads the arguments of the public calls: what is asked for, and by which lock."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kernel_spec.errors import FormatError, UsageError
from kernel_spec.names import parse_repo_id
from kernels.revision import KernelRef
from kernels.settings import Settings

if TYPE_CHECKING:
    from kernel_spec.backend import BackendKind
    from kernels.lockfile import LockFile

UserAgent = str | Mapping[str, str] | None
Trust = bool | Collection[str]
Version = int | str | None


def parse_ref(repo_id: str, revision: str | None, version: Version) -> KernelRef:
    """Read what a call asks for.

    Raises:
        UsageError: ``repo_id`` is not ``owner/name``, both a version and a revision, a version
            that is neither a number nor a range, or another argument that is no text.
    """
    if not isinstance(repo_id, str):
        raise UsageError(f"repo_id: expected a text such as 'owner/name', found {repo_id!r}.")
    if revision is not None and not isinstance(revision, str):
        raise UsageError(
            f"{repo_id}: revision: expected a branch, a tag or a commit as a text, "
            f"found {revision!r}."
        )
    if version is not None and revision is not None:
        raise UsageError(
            f"{repo_id}: give a version or a revision, not both "
            f"(found version={version!r}, revision={revision!r})."
        )
    try:
        repo = parse_repo_id(repo_id)
    except FormatError as err:
        raise UsageError(f"{err}.") from None
    if isinstance(version, str):
        from kernel_spec.names import parse_range

        try:
            parse_range(version)
        except FormatError as err:
            raise UsageError(f"{repo_id}: version: {err}.") from None
        return KernelRef(repo, version_range=version)
    if version is not None and (
        isinstance(version, bool) or not isinstance(version, int) or version < 0
    ):
        raise UsageError(
            f"{repo_id}: version: expected a number such as 1 (the branch v1) or a range of tags "
            f"such as '>=1.0,<2', found {version!r}."
        )
    return KernelRef(repo, version, revision or None)


def parse_backend(word: str | None) -> BackendKind | None:
    """Read the ``backend=`` of a call.

    Raises:
        UsageError: no backend has that name.
    """
    if word is None:
        return None
    from kernels.fit import parse_backend_word

    return parse_backend_word(word)


def parse_build(word: str | None) -> bool:
    """Read the ``build_from_source=`` of a call.

    Raises:
        UsageError: it is neither None nor ``"missing"``.
    """
    if word is None or word == "missing":
        return word is not None
    raise UsageError(f'build_from_source: expected None or "missing", found {word!r}.')


def lock_in_force(settings: Settings) -> LockFile | None:
    """Return the lock of ``KERNELS_LOCK``, where there is one.

    Raises:
        LockError, NotLockedError: it cannot be read.
    """
    if settings.lock is None:
        return None
    from kernels.lockfile import read_lock

    return read_lock(settings.lock)
