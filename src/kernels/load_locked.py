"""``get_locked_kernel`` and ``load_kernel``: load what the caller's lock names."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kernel_spec.errors import WrongTypeError
from kernels.asked import Trust, UserAgent, parse_backend, parse_ref, require_options
from kernels.boundary import public
from kernels.load import load_found
from kernels.request import Request
from kernels.settings import Settings, read_settings

if TYPE_CHECKING:
    from kernels.lockfile import LockFile

LockPath = str | PathLike[str] | None


@public
def get_locked_kernel(
    repo_id: str,
    lockfile: LockPath = None,
    *,
    local_files_only: bool = False,
    backend: str | None = None,
    trust_remote_code: Trust = False,
    user_agent: UserAgent = None,
) -> ModuleType:
    """Load a kernel at the commit, and with the bytes, that a lock names.

    Args:
        repo_id: ``owner/name``.
        lockfile: the lock; default: ``KERNELS_LOCK``, else that of the calling code
            (:mod:`kernels.lockfile`).
        local_files_only: never download, as :func:`load_kernel`.
        backend: choose for this backend instead of the system's.
        trust_remote_code: consent, where the lock names no digests; as for ``get_kernel``.
        user_agent: what the calling library adds to the header of that name.

    Raises:
        ValueError: no lock, or it does not name the kernel (``NotLockedError``, also a
            LookupError); other bytes than it names (``IntegrityError``); a lock with faults.
        As ``get_kernel``.
    """
    settings = read_settings()
    ref = parse_ref(repo_id, None, None)
    require_options(
        trust_remote_code=trust_remote_code,
        user_agent=user_agent,
        local_files_only=local_files_only,
    )
    request = Request(
        settings=settings.without_network("local_files_only=True")
        if local_files_only
        else settings,
        backend=parse_backend(backend),
        user_agent=user_agent,
        lock=_lock_for(repo_id, lockfile, settings),
        download=not local_files_only,
        consent=trust_remote_code,
    )
    return load_found(ref, request)


@public
def load_kernel(
    repo_id: str, lockfile: LockPath = None, *, backend: str | None = None
) -> ModuleType:
    """Load a locked kernel that ``kernels download`` has brought here; never downloads anything.

    Args:
        repo_id: ``owner/name``.
        lockfile: as :func:`get_locked_kernel`.
        backend: choose for this backend instead of the system's.

    Raises:
        ValueError: as :func:`get_locked_kernel`.
        FileNotFoundError: it is not in the cache (``NotCachedError``), or no variant fits.
        RuntimeError, ImportError: as ``get_kernel``.
    """
    settings = read_settings()
    ref = parse_ref(repo_id, None, None)
    request = Request(
        settings=settings.without_network("load_kernel"),
        backend=parse_backend(backend),
        lock=_lock_for(repo_id, lockfile, settings),
        download=False,
    )
    return load_found(ref, request)


def _lock_for(repo_id: str, lockfile: LockPath, settings: Settings) -> LockFile:
    from kernels.lockfile import get_caller_lock, read_lock

    if lockfile is not None:
        if not isinstance(lockfile, str | PathLike):
            raise WrongTypeError("lockfile", "a path", lockfile)
        return read_lock(Path(lockfile).expanduser().absolute(), asked_for=repo_id)
    if settings.lock is not None:
        return read_lock(settings.lock, asked_for=repo_id)
    return get_caller_lock(repo_id)
