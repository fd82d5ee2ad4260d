"""The story of ``get_kernel``: settings, system, source, choice, trust, install, import.

:func:`load_with_trace` reads from top to bottom as that path and returns how long each step
took; a kernel that needs others is preceded by them at every step. The functions of the public API
go the same way; a repeated :func:`get_kernel` is answered from this process's memory, after a check
that costs microseconds and no request.
"""

from __future__ import annotations

import time
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_spec.errors import WrongTypeError
from kernels import answers
from kernels.admit import admit
from kernels.asked import (
    Trust,
    UserAgent,
    Version,
    parse_backend,
    parse_ref,
    require_options,
)
from kernels.boundary import public
from kernels.errors import (
    ClientTooOldError,
    DeviceError,
    ForbiddenError,
    NotAKernelError,
    NotCachedError,
    NotLockedError,
    NoVariantError,
    RepoNotFoundError,
    RevisionNotFoundError,
)
from kernels.loaded import Clock, LoadedKernel, LoadTrace, RepoInfo, import_variant
from kernels.request import Found, Request, read_request
from kernels.resolve import dependency_ref, resolve, resolve_path
from kernels.revision import KernelRef
from kernels.settings import fingerprint, read_settings
from kernels.source import Watch, locate
from kernels.trees import variants_of

if TYPE_CHECKING:
    from kernel_spec.compat import Decision
    from kernel_spec.metadata import Metadata


class _Remembered(NamedTuple):
    """An answer of this process and what must still hold for it."""

    module: ModuleType
    watched: tuple[Watch, ...]
    # In seconds since 1970; before the first of them a clock was set back.
    since: float
    expires: float
    # What a path looked like; empty for a kernel of a hub.
    stamp: tuple[int, ...]
    path: Path


_remembered: dict[object, _Remembered] = {}


@public
def get_kernel(
    repo_id: str,
    revision: str | None = None,
    *,
    version: Version = None,
    backend: str | None = None,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,
    check_arch: bool = True,
    refresh: bool = False,
    build_from_source: str | None = None,
) -> ModuleType:
    """Find, download, verify and import the variant of a kernel that fits this system.

    Args:
        repo_id: ``owner/name``.
        revision: a branch, a tag, a commit, or a unique beginning of one (7 digits or more).
        version: a number N means the branch ``vN``; a text such as ``">=1.0,<2"`` or ``"1.1.2"``
            the newest tag ``vX.Y.Z`` in that range. With neither this nor a revision, the highest
            version branch is taken, else ``main``.
        backend: choose for this backend (``cpu``, ``cuda``, ...) instead of the system's.
        user_agent: what the calling library adds to the header of that name.
        trust_remote_code: consent, for this call, to run the kernel of an owner who is not a
            trusted publisher: True, or the ids of the repositories.
        check_arch: pass over variants without code for a visible device.
        refresh: ask the hub even where its last answer is fresh.
        build_from_source: ``"missing"``: where no variant fits and the repository carries its
            sources, build the one that does, once per host (``docs/guide/many-processes.md``).

    Returns:
        The kernel's module; the same one for the same content.

    Raises:
        TypeError: an argument of a wrong type.
        ValueError: a wrong argument, an unknown version (``VersionNotFoundError``), a publisher
            who is not trusted (``TrustError``), bytes that are not those promised
            (``IntegrityError``), kernels that need each other in a circle (``DependencyError``).
        LookupError: no hub has the repository, or it has no such revision; ``KERNELS_LOCK`` does
            not name it (``NotLockedError``).
        FileNotFoundError: no variant fits (``NoVariantError``), nor can one be built
            (``SourceBuildError``), offline and not cached, or
            ``KERNELS_LOAD=never`` (``ForbiddenError``).
        RuntimeError: no code for a device (``DeviceError``), or this client is too old.
        ImportError: the kernel itself cannot be imported, or a package that it needs is missing.
        OSError: the hub cannot be reached or refuses, the cache cannot be written.
    """
    key: object = None
    if not refresh:
        consent = (
            trust_remote_code if isinstance(trust_remote_code, bool) else str(trust_remote_code)
        )
        asked = (repo_id, revision, version, backend, consent, check_arch, build_from_source)
        key = (*asked, fingerprint())
        try:
            module = _recall(key)
        except TypeError:
            # An argument that no dictionary takes, such as a list: what follows says which.
            key = module = None
        if module is not None:
            return module
    ref = parse_ref(repo_id, revision, version)
    request = read_request(
        backend=backend,
        user_agent=user_agent,
        trust_remote_code=trust_remote_code,
        check_arch=check_arch,
        refresh=refresh,
        build_from_source=build_from_source,
    )
    found, trace = _load(resolve(ref, request), request, Clock())
    if key is not None:
        _remembered[key] = _remember(found, trace)
    return trace.module


def load_with_trace(
    repo_id: str, revision: str | None = None, *, version: Version = None, **options: Any
) -> LoadTrace:
    """Do what :func:`get_kernel` does, with nothing remembered, and tell how long each step took."""
    clock = Clock()
    ref = parse_ref(repo_id, revision, version)
    request = read_request(**options)
    clock.lap("prepare")
    return _load(resolve(ref, request, clock), request, clock)[1]


@public
def get_local_kernel(
    path: str | PathLike[str],
    package_name: str | None = None,
    *,
    backend: str | None = None,
    trust_remote_code: Trust = False,
    user_agent: UserAgent = None,
) -> ModuleType:
    """Import the variant at a path that fits this system.

    Args:
        path: a kernel project, its ``build`` folder, or one variant.
        package_name: not needed; older callers give it.
        backend: choose for this backend instead of the system's.
        trust_remote_code: consent to the kernels of hubs that it needs; the path itself is
            trusted, because the caller names it.
        user_agent: for the hubs of the kernels that it needs.

    Raises:
        FileNotFoundError: there is no kernel at the path, or no variant fits.
        ValueError: a wrong argument, unusable metadata, files that are not those promised.
        RuntimeError, ImportError: as :func:`get_kernel`.
    """
    del package_name
    if not isinstance(path, str | PathLike):
        raise WrongTypeError("path", "the path of a kernel", path)
    place = Path(path).expanduser().absolute()
    request = read_request(
        backend=backend, user_agent=user_agent, trust_remote_code=trust_remote_code
    )
    return _load(resolve_path(place, request), request, Clock())[1].module


@public
def has_kernel(
    repo_id: str,
    revision: str | None = None,
    *,
    version: Version = None,
    backend: str | None = None,
    trust_remote_code: Trust = False,
    check_arch: bool = True,
) -> bool:
    """Say whether a hub has the kernel and a variant of it fits this system; runs nothing of it.

    False where the repository, the version, the revision or a fitting variant does not exist, of
    the kernel or of one that it needs, and where the settings allow no kernel of a hub.

    Raises:
        ValueError: a wrong argument.
        OSError: a hub cannot be reached, or refuses.
    """
    ref = parse_ref(repo_id, revision, version)
    request = read_request(
        backend=backend, trust_remote_code=trust_remote_code, check_arch=check_arch
    )
    try:
        resolve(ref, request)
    except (
        ClientTooOldError,
        DeviceError,
        ForbiddenError,
        NotAKernelError,
        NotCachedError,
        NotLockedError,
        NoVariantError,
        RepoNotFoundError,
        RevisionNotFoundError,
    ):
        return False
    return True


@public
def install_kernel(
    repo_id: str,
    revision: str | None = None,
    *,
    version: Version = None,
    backend: str | None = None,
    local_files_only: bool = False,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,
) -> Path:
    """Download and verify the variant that fits this system, and what it needs; import nothing.

    Returns:
        The directory of the variant.

    Raises:
        As :func:`get_kernel`, but for ImportError.
    """
    require_options(local_files_only=local_files_only)
    ref = parse_ref(repo_id, revision, version)
    request = read_request(
        backend=backend,
        user_agent=user_agent,
        trust_remote_code=trust_remote_code,
        check_arch=False,
    )
    if local_files_only:
        offline = request.settings.without_network("local_files_only=True")
        request = request._replace(settings=offline)
    return admit(resolve(ref, request), request, Clock())[1][-1].path


@public
def get_kernel_variants(
    repo_id: str,
    revision: str | None = None,
    *,
    version: Version = None,
    backend: str | None = None,
) -> list[Decision]:
    """Judge every variant of a kernel: the fitting ones first, best first, then why the others do not.

    Raises:
        As :func:`get_kernel`, where the kernel is not found.
    """
    settings = read_settings()
    ref = parse_ref(repo_id, revision, version)
    kind = parse_backend(backend)
    if (override := settings.overrides.get(repo_id)) is not None:
        from kernels.local import decide_local

        return list(decide_local(override, backend=kind))
    if settings.never:
        raise ForbiddenError(repo_id)
    from kernel_spec.compat import decide
    from kernels.system import detect

    located = locate(ref, settings)
    return list(decide(detect(), variants_of(located.files), backend=kind))


def load_dependencies(metadata: Metadata) -> dict[str, ModuleType]:
    """Load the kernels that a kernel needs, by the id of their repository.

    Raises:
        As :func:`get_kernel`.
    """
    modules = {}
    for dependency in metadata.kernel_depends:
        ref = dependency_ref(dependency)
        modules[dependency.repo_id] = get_kernel(
            dependency.repo_id, ref.revision, version=ref.version
        )
    return modules


def load_found(ref: KernelRef, request: Request) -> ModuleType:
    """Load a kernel as a request says, with nothing remembered."""
    return _load(resolve(ref, request), request, Clock())[1].module


def forget() -> None:
    """Forget every remembered answer, so that the next call looks again; modules stay loaded."""
    _remembered.clear()
    answers.forget()


def _recall(key: object) -> ModuleType | None:
    known = _remembered.get(key)
    if known is None:
        return None
    if known.stamp:
        from kernels.local import quick_stamp

        return known.module if quick_stamp(known.path) == known.stamp else None
    for watch in known.watched:
        if watch.hub.stamp(watch.repo) != watch.stamp:
            return None
    return known.module if known.since <= time.time() < known.expires else None


def _load(found: Found, request: Request, clock: Clock) -> tuple[Found, LoadTrace]:
    """Trust, install and import what was found, what is needed first; return what was loaded in the end."""
    nodes, variants = admit(found, request, clock)
    kernels: dict[int, LoadedKernel] = {}
    for node, variant in zip(nodes, variants, strict=True):
        repo_info = None if node.commit is None else RepoInfo(str(node.ref.repo), node.commit)
        needed = zip(node.metadata.kernel_depends, node.dependencies, strict=True)
        dependencies = {entry.repo_id: kernels[id(below)].module for entry, below in needed}
        kernels[id(node)] = import_variant(variant, repo_info, dependencies)
    clock.lap("import")
    loaded = nodes[-1]
    trace = LoadTrace(
        kernel=kernels[id(loaded)],
        path=variants[-1].path,
        source=loaded.source,
        downloaded=loaded.variant is None,
        phases=tuple(clock.phases),
    )
    return loaded, trace


def _remember(found: Found, trace: LoadTrace) -> _Remembered:
    located = found.located
    if located is None and found.locked is None:
        from kernels.local import quick_stamp

        stamp = quick_stamp(trace.path)
        return _Remembered(trace.module, (), 0.0, float("inf"), stamp, trace.path)
    watched = () if located is None else located.watched
    expires = float("inf") if located is None else located.expires
    return _Remembered(trace.module, watched, time.time(), expires, (), trace.path)
