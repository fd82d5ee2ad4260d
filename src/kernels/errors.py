"""What can go wrong between ``get_kernel`` and a loaded module.

::

    KernelError                                exit code 1 (kernel_spec.errors)
    ├── SettingsError       (ValueError)       exit code 2: an environment variable cannot be read
    ├── RepoNotFoundError   (LookupError)      no hub has the repository      .repo_id .hubs
    ├── RevisionNotFoundError (LookupError, ValueError)                       .repo_id .revision
    │   ├── VersionNotFoundError               no branch vN                   .versions
    │   └── EntryNotFoundError                 the commit has no such file or folder
    ├── RedirectError       (LookupError, ValueError) moved in a circle, or to nowhere .repo_id
    ├── NotLockedError      (LookupError, ValueError) no lock, or it lacks the kernel .repo_id
    ├── ForbiddenError      (FileNotFoundError) KERNELS_LOAD=never            .repo_id
    ├── DependencyError     (RuntimeError, ValueError) kernels that need each other, or undeclared
    ├── NoVariantError      (FileNotFoundError) nothing fits this system      .decisions
    ├── SourceBuildError    (FileNotFoundError) none fits, none could be built .repo_id .decisions
    ├── BundleError         (ValueError)       a bundle that cannot be made, or has no place here
    ├── NotCachedError      (FileNotFoundError) offline, and not in the cache .repo_id
    ├── NotAKernelError     (FileNotFoundError) a path that holds no kernel   .path
    ├── HubUnreachableError (ConnectionError)  no answer, 5xx or 429          .url .status .retry_after
    ├── HubAccessError      (PermissionError)  401 or 403                     .url .status
    ├── CacheError          (OSError)          the cache cannot be used       .path
    ├── TrustError          (ValueError)       the publisher is not trusted   .repo_id
    ├── ClientTooOldError   (RuntimeError)     metadata of a later client     .needed
    ├── DeviceError         (RuntimeError)     no code for a visible device   .variant
    ├── BenchmarkError      (RuntimeError)     a benchmark's own code failed  .place
    ├── KernelImportError   (ImportError)      the kernel's own code failed   .path
    ├── OpConflictError     (ImportError)      other bytes under a taken op id .op_id .paths
    ├── SharedSymbolError   (ImportError)      a variable of a loaded library, of another size .symbols .paths
    ├── MappingError        (ValueError)       a mapping of layers that means nothing .faults
    ├── NotALayerError      (ValueError, TypeError) what is marked can have no kernel
    ├── LayerNotFoundError  (LookupError, ValueError) the kernel has no such layer
    └── KernelizeError      (ValueError, TypeError) layers cannot take their kernels .faults

The kind in brackets is what callers of the published client already catch:
``FileNotFoundError`` means "no build for this system", ``ValueError`` a wrong request.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_spec.errors import Fault, KernelError, UsageError

if TYPE_CHECKING:
    from kernel_spec.compat import Decision


# What the system says of a lock where there are none, as on NFS without its lock daemon.
_WITHOUT_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
# What the system says of a path through something that is no folder.
_OBSTRUCTED = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENOENT)


class SettingsError(KernelError, ValueError):
    """An environment variable holds something that cannot be meant."""

    exit_code = 2


class RepoNotFoundError(KernelError, LookupError):
    """No hub that was asked has the repository."""

    def __init__(
        self,
        repo_id: str,
        hubs: Iterable[str],
        *,
        similar: Iterable[str] = (),
        models: Iterable[str] = (),
    ) -> None:
        self.repo_id = repo_id
        self.hubs = tuple(hubs)
        lines = [f"There is no kernel {repo_id!r} on {_words(self.hubs) or 'any hub'}."]
        if close := tuple(similar):
            lines.append(f"Did you mean {_words(close, last='or')}?")
        if older := tuple(models):
            lines.append(
                f"{_words(older)} has a model of that name: kernels that were published as models have "
                "to be published anew, as kernels."
            )
        lines.append(
            "Check the spelling; a private kernel needs a token (hf auth login), and another hub "
            "is named by KERNELS_HUB."
        )
        super().__init__(" ".join(lines))


class RevisionNotFoundError(KernelError, LookupError, ValueError):
    """The repository has no such branch, tag or commit."""

    def __init__(self, repo_id: str, revision: str, message: str) -> None:
        self.repo_id = repo_id
        self.revision = revision
        super().__init__(message)


class VersionNotFoundError(RevisionNotFoundError):
    """The repository has no branch of that version."""

    def __init__(
        self, repo_id: str, version: int | str | None, versions: Iterable[int], message: str
    ) -> None:
        self.version = version
        self.versions = tuple(versions)
        asked = f"v{version}" if isinstance(version, int) else version or "the default"
        super().__init__(repo_id, asked, message)


class EntryNotFoundError(RevisionNotFoundError):
    """A hub has the commit, and no such file or folder in it."""


class RedirectError(KernelError, LookupError, ValueError):
    """A repository says that it has moved, and following that leads nowhere."""

    def __init__(self, repo_id: str, message: str) -> None:
        self.repo_id = repo_id
        super().__init__(message)


class NotLockedError(KernelError, LookupError, ValueError):
    """There is no lock file, or it does not name the kernel that was asked for."""

    def __init__(self, repo_id: str, message: str) -> None:
        self.repo_id = repo_id
        super().__init__(message)


class ForbiddenError(KernelError, FileNotFoundError):
    """The settings forbid to load any kernel of a hub."""

    def __init__(self, repo_id: str) -> None:
        self.repo_id = repo_id
        super().__init__(
            f"{repo_id} was not loaded: KERNELS_LOAD=never allows no kernel of a hub, only those "
            "of paths (LOCAL_KERNELS, get_local_kernel)."
        )


class DependencyError(KernelError, RuntimeError, ValueError):
    """The kernels that a kernel needs cannot be had: a circle, or one that it does not declare."""


class NoVariantError(KernelError, FileNotFoundError):
    """The kernel is there, but none of its variants fits this system."""

    def __init__(
        self, what: str, system: str, decisions: Iterable[Decision], *, hint: str = ""
    ) -> None:
        self.decisions = tuple(decisions)
        lines = [f"No build variant of {what} fits this system ({system})."]
        lines += [f"  {line}" for line in describe_decisions(self.decisions)]
        if not self.decisions:
            lines.append("  It holds no build variants at all.")
        if hint:
            lines.append(hint)
        super().__init__("\n".join(lines))


class SourceBuildError(KernelError, FileNotFoundError):
    """No variant fits, and none that does could be built from the repository's sources."""

    def __init__(self, repo_id: str, message: str, decisions: Iterable[Decision] = ()) -> None:
        self.repo_id = repo_id
        self.decisions = tuple(decisions)
        super().__init__(message)


class BundleError(KernelError, ValueError):
    """A bundle that cannot be made as asked, or that has no place on this machine."""


class NotCachedError(KernelError, FileNotFoundError):
    """Offline, and the cache does not hold what was asked for."""

    def __init__(self, repo_id: str, message: str) -> None:
        self.repo_id = repo_id
        super().__init__(message)


class NotAKernelError(KernelError, FileNotFoundError):
    """A path that should hold a kernel and does not."""

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        super().__init__(message)


class HubUnreachableError(KernelError, ConnectionError):
    """A hub gave no answer, or said that it cannot answer now (5xx, 429)."""

    def __init__(
        self,
        url: str,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.url = url
        self.status = status
        self.retry_after = retry_after
        super().__init__(message)


class HubAccessError(KernelError, PermissionError):
    """A hub refused: 401 or 403."""

    def __init__(self, url: str, message: str, *, status: int) -> None:
        self.url = url
        self.status = status
        super().__init__(message)


class CacheError(KernelError, OSError):
    """The cache cannot be read or written."""

    def __init__(self, path: Path, cause: OSError, *, advice: str = "") -> None:
        self.path = path
        obstacle = find_obstacle(path) if cause.errno in _OBSTRUCTED else None
        reason = str(cause.strerror or cause)
        if obstacle is not None:
            reason = f"{'it' if obstacle == path else obstacle} is no folder ({reason})"
        super().__init__(
            f"The kernel cache cannot be used: {path}: {reason}. "
            + (advice or _cache_advice(cause))
        )


def _cache_advice(cause: OSError) -> str:
    if cause.errno in _WITHOUT_LOCKS:
        return (
            "Its file system keeps no locks between processes: set KERNELS_CACHE to a directory of one "
            "that does, such as a local disk."
        )
    return "Set KERNELS_CACHE to a directory that this user may write and that has room."


class TrustError(KernelError, ValueError):
    """The publisher of a kernel is not trusted, and nobody consented to run its code."""

    def __init__(self, repo_id: str, message: str) -> None:
        self.repo_id = repo_id
        super().__init__(message)


class ClientTooOldError(KernelError, RuntimeError):
    """The variant asks for a later client than this one."""

    def __init__(self, what: str, needed: str, ours: str) -> None:
        self.needed = needed
        super().__init__(
            f"{what} needs a kernels client of version {needed} or later; this is {ours}. "
            f"Update the client, or ask for an older version of the kernel."
        )


class DeviceError(KernelError, RuntimeError):
    """No variant has code for one of the visible devices."""

    def __init__(self, variant: str, message: str) -> None:
        self.variant = variant
        super().__init__(message)


class KernelImportError(KernelError, ImportError):
    """The kernel's own code failed while it was imported."""

    def __init__(self, message: str, path: Path) -> None:
        self.kernel_path = path
        super().__init__(message, path=str(path))


class BenchmarkError(KernelError, RuntimeError):
    """The code of a benchmark file failed, or a call of one of its cases did."""

    def __init__(self, place: str, message: str) -> None:
        self.place = place
        super().__init__(f"{place}: {message}")


class OpConflictError(KernelError, ImportError):
    """An op library of the same id with other bytes is loaded already."""

    def __init__(self, op_id: str, loaded: Path, refused: Path) -> None:
        self.op_id = op_id
        self.paths = (loaded, refused)
        where = (
            f"{loaded} changed since it was loaded"
            if loaded == refused
            else f"{refused} holds other bytes under the op id {op_id!r} than {loaded}, which is loaded"
        )
        super().__init__(
            f"{where}. Two libraries of one op id cannot live in one process: "
            "start a new process, or rebuild one of them from its changed sources to get a new id."
        )


class SharedSymbolError(KernelError, ImportError):
    """A library of the kernel and one that is loaded define the same variable, of two sizes."""

    def __init__(self, symbols: Iterable[str], *, loaded: Path, refused: Path) -> None:
        self.symbols = tuple(symbols)
        self.paths = (loaded, refused)
        super().__init__(
            f"{refused} and {loaded}, which is loaded, define {_words(self.symbols[:3])} with different "
            "sizes. The dynamic loader keeps one of each such name (GNU-unique symbols), so one library "
            "would write past the end of it; nothing of the kernel was executed. Use the two in two "
            "processes, or build them anew with -fno-gnu-unique, as kernel-builder does."
        )


class MappingError(KernelError, ValueError):
    """A mapping of layers to kernels with faults, all of which are listed."""

    exit_code = 2

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(["The kernel mapping:", *(f"  {fault}" for fault in faults)]))


class NotALayerError(UsageError, TypeError):
    """What is marked for kernels is neither a class of layers nor a function."""


class LayerNotFoundError(KernelError, LookupError, ValueError):
    """A kernel has no layer, or no function, of the name that a mapping gives."""


class KernelizeError(KernelError, ValueError, TypeError):
    """Layers of a model cannot take their kernels, or none did; the model is as it was.

    Attributes:
        faults: for each layer what is wrong.
    """

    def __init__(self, faults: tuple[Fault, ...], headline: str) -> None:
        self.faults = faults
        super().__init__("\n".join([headline, *(f"  {fault}" for fault in faults)]))


def find_obstacle(path: Path) -> Path | None:
    """Return what stands at a path, or above it, where a folder should be: a file, a link to nothing."""
    for place in (path, *path.parents):
        try:
            if place.is_dir():
                return None
            if os.path.lexists(place):
                return place
        except OSError:
            return None
    return None


def describe_decisions(decisions: Iterable[Decision]) -> list[str]:
    """Return one line per variant: its name and why it was taken or not."""
    from kernel_spec.compat import Accepted, Rejected  # `import kernels` judges nothing

    lines = []
    for decision in decisions:
        match decision:
            case Accepted(name=name):
                lines.append(f"{name}: fits")
            case Rejected(name=name):
                lines.append(f"{name}: {decision.reason}")
    return lines


def _words(items: tuple[str, ...], *, last: str = "and") -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"
