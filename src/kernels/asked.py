"""Reads the arguments of the public calls: what is asked for, and by which lock."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kernel_spec.errors import FormatError, UsageError, WrongTypeError
from kernel_spec.names import parse_repo_id
from kernels.revision import KernelRef
from kernels.settings import Settings

if TYPE_CHECKING:
    from kernel_spec.backend import BackendKind
    from kernels.lockfile import LockFile

UserAgent = str | Mapping[str, str] | None
Trust = bool | Collection[str]
Version = int | str | None

_VERSIONS = "a number such as 1 (the branch v1) or a range of tags such as '>=1.0,<2'"


def parse_ref(repo_id: str, revision: str | None, version: Version) -> KernelRef:
    """Read what a call asks for.

    Raises:
        UsageError: ``repo_id`` is not ``owner/name``, both a version and a revision, or a version
            that is no number of a branch and no range.
        WrongTypeError: an argument of another type.
    """
    if not isinstance(repo_id, str):
        raise WrongTypeError("repo_id", "a text such as 'owner/name'", repo_id)
    if revision is not None and not isinstance(revision, str):
        raise WrongTypeError(
            f"{repo_id}: revision", "a branch, a tag or a commit as a text", revision
        )
    if isinstance(version, bool) or not isinstance(version, int | str | None):
        raise WrongTypeError(f"{repo_id}: version", _VERSIONS, version)
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
    if version is not None and version < 0:
        raise UsageError(f"{repo_id}: version: expected {_VERSIONS}, found {version!r}.")
    return KernelRef(repo, version, revision or None)


def require_options(
    *, trust_remote_code: Trust = False, user_agent: UserAgent = None, **flags: bool
) -> None:
    """Refuse what would be taken for something else: the text ``"false"`` is true, a text has parts.

    Raises:
        WrongTypeError: a flag that is neither True nor False, or another option of a wrong type.
    """
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise WrongTypeError(name, "True or False", flag)
    if isinstance(trust_remote_code, str | bytes) or not isinstance(
        trust_remote_code, bool | Collection
    ):
        raise WrongTypeError(
            "trust_remote_code", "True, False or a list of repository ids", trust_remote_code
        )
    if not isinstance(user_agent, str | Mapping | None):
        raise WrongTypeError("user_agent", "a text or a dictionary of texts", user_agent)


def parse_backend(word: str | None) -> BackendKind | None:
    """Read the ``backend=`` of a call.

    Raises:
        UsageError: no backend has that name.
    """
    if word is None:
        return None
    if not isinstance(word, str):
        raise WrongTypeError("backend", "a text such as 'cpu'", word)
    from kernels.fit import parse_backend_word

    return parse_backend_word(word)


def parse_build(word: str | None) -> bool:
    """Read the ``build_from_source=`` of a call.

    Raises:
        UsageError: it is neither None nor ``"missing"``.
        WrongTypeError: it is no text.
    """
    if word is None or word == "missing":
        return word is not None
    if not isinstance(word, str):
        raise WrongTypeError("build_from_source", 'None or "missing"', word)
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
