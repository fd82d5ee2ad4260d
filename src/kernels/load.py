"""The story of ``get_kernel``: settings, system, source, choice, trust, install, import.

:func:`load_with_trace` reads from top to bottom as that path and returns how long each step
took. The functions of the public API are thin over it; a repeated :func:`get_kernel` is answered
from this process's memory, after a check that costs microseconds and no request.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from kernel_spec.errors import FormatError, UsageError
from kernel_spec.names import RepoId, parse_repo_id
from kernels import answers
from kernels import settings as settings_module
from kernels.errors import (
    ClientTooOldError,
    DeviceError,
    NotAKernelError,
    NotCachedError,
    NoVariantError,
    RepoNotFoundError,
    RevisionNotFoundError,
)
from kernels.hub import Hub
from kernels.loaded import (
    Clock,
    LoadTrace,
    RepoInfo,
    import_variant,
)
from kernels.settings import Settings, read_settings
from kernels.source import KernelRef, Located, locate, variants_of
from kernels.store import Store

if TYPE_CHECKING:
    from kernel_spec.backend import BackendKind
    from kernel_spec.compat import Decision
    from kernels.choose import Chosen
    from kernels.importer import VariantDir

UserAgent = str | Mapping[str, str] | None
Trust = bool | Collection[str]


class _Remembered(NamedTuple):
    """An answer of this process and what must still hold for it."""

    module: ModuleType
    repo: RepoId
    hub: Hub | None
    stamp: tuple[int, ...] | None
    expires: float
    path: Path


_remembered: dict[object, _Remembered] = {}


def get_kernel(
    repo_id: str,
    revision: str | None = None,
    *,
    version: int | None = None,
    backend: str | None = None,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,
    check_arch: bool = True,
    refresh: bool = False,
) -> ModuleType:
    """Find, download, verify and import the variant of a kernel that fits this system.

    Args:
        repo_id: ``owner/name``.
        revision: a branch, a tag, a commit, or a unique beginning of one (7 digits or more).
        version: the branch ``v<version>``. With neither, the highest version is taken.
        backend: choose for this backend (``cpu``, ``cuda``, ...) instead of the system's.
        user_agent: what the calling library adds to the header of that name.
        trust_remote_code: consent, for this call, to run the kernel of an owner who is not a
            trusted publisher: True, or the ids of the repositories.
        check_arch: pass over variants without code for a visible device.
        refresh: ask the hub even where its last answer is fresh.

    Returns:
        The kernel's module; the same one for the same content.

    Raises:
        ValueError: a wrong argument, an unknown version (``VersionNotFoundError``), a publisher
            who is not trusted (``TrustError``), bytes that are not those promised
            (``IntegrityError``).
        LookupError: no hub has the repository, or it has no such revision.
        FileNotFoundError: no variant fits (``NoVariantError``), or offline and not cached.
        RuntimeError: no code for a device (``DeviceError``), or this client is too old.
        ImportError: the kernel itself cannot be imported.
        OSError: the hub cannot be reached or refuses, the cache cannot be written.
    """
    key: object = None
    if not refresh:
        consent = (
            trust_remote_code if isinstance(trust_remote_code, bool) else str(trust_remote_code)
        )
        key = (
            repo_id,
            revision,
            version,
            backend,
            consent,
            check_arch,
            settings_module.fingerprint(),
        )
        try:
            module = _recall(key)
        except TypeError:
            # An argument that no dictionary takes, such as a list: what follows says which.
            key = module = None
        if module is not None:
            return module
    return load_with_trace(
        repo_id,
        revision,
        version=version,
        backend=backend,
        user_agent=user_agent,
        trust_remote_code=trust_remote_code,
        check_arch=check_arch,
        refresh=refresh,
        _key=key,
    ).module


def load_with_trace(
    repo_id: str,
    revision: str | None = None,
    *,
    version: int | None = None,
    backend: str | None = None,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,
    check_arch: bool = True,
    refresh: bool = False,
    _key: object = None,
) -> LoadTrace:
    """Do what :func:`get_kernel` does, with nothing remembered, and tell how long each step took."""
    clock = Clock()
    # Here and below: `import kernels` leaves to the first call what only a call needs.
    from kernels.choose import choose_variant

    settings = read_settings()
    ref = parse_ref(repo_id, revision, version)
    kind = _backend_kind(backend)
    clock.lap("prepare")

    if (override := settings.overrides.get(repo_id)) is not None:
        return _load_path(override, kind, clock, check_arch=check_arch, key=_key, repo=ref.repo)

    located = locate(ref, settings, refresh=refresh, user_agent=user_agent)
    clock.lap("locate")
    chosen = choose_variant(located, settings, kind, check_arch=check_arch)
    clock.lap("choose")
    _require_trust(located, settings, trust_remote_code, refresh=refresh)
    clock.lap("trust")
    variant = _install(chosen, settings)
    clock.lap("install")
    kernel = import_variant(variant, RepoInfo(repo_id, located.commit))
    clock.lap("import")

    if _key is not None:
        _remembered[_key] = _Remembered(
            module=kernel.module,
            repo=ref.repo,
            hub=located.hub if located.stamp is not None else None,
            stamp=located.stamp,
            expires=located.expires,
            path=variant.path,
        )
    return LoadTrace(
        kernel=kernel,
        path=variant.path,
        source=located.hub.url,
        downloaded=chosen.installed is None,
        phases=tuple(clock.phases),
    )


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
        trust_remote_code: not needed: a path that the caller names is trusted.
        user_agent: not needed: no hub is asked.

    Raises:
        FileNotFoundError: there is no kernel at the path, or no variant fits.
        ValueError: a wrong argument, unusable metadata, files that are not those promised.
        RuntimeError, ImportError: as :func:`get_kernel`.
    """
    del package_name, trust_remote_code, user_agent
    if not isinstance(path, str | PathLike):
        raise UsageError(f"path: expected the path of a kernel, found {path!r}.")
    place = Path(path).expanduser().absolute()
    return _load_path(place, _backend_kind(backend), Clock(), check_arch=True).module


def has_kernel(
    repo_id: str,
    revision: str | None = None,
    *,
    version: int | None = None,
    backend: str | None = None,
    trust_remote_code: Trust = False,
    check_arch: bool = True,
) -> bool:
    """Say whether a hub has the kernel and a variant of it fits this system; runs nothing of it.

    False where the repository, the version, the revision or a fitting variant does not exist.

    Raises:
        ValueError: a wrong argument.
        OSError: a hub cannot be reached, or refuses.
    """
    del trust_remote_code
    from kernels.choose import choose_variant
    from kernels.local import choose_local

    settings = read_settings()
    ref = parse_ref(repo_id, revision, version)
    kind = _backend_kind(backend)
    try:
        if (override := settings.overrides.get(repo_id)) is not None:
            choose_local(override, backend=kind, check_arch=check_arch)
        else:
            choose_variant(locate(ref, settings), settings, kind, check_arch=check_arch)
    except (
        ClientTooOldError,
        DeviceError,
        NotAKernelError,
        NotCachedError,
        NoVariantError,
        RepoNotFoundError,
        RevisionNotFoundError,
    ):
        return False
    return True


def install_kernel(
    repo_id: str,
    revision: str | None = None,
    *,
    version: int | None = None,
    backend: str | None = None,
    local_files_only: bool = False,
    user_agent: UserAgent = None,
    trust_remote_code: Trust = False,
) -> Path:
    """Download and verify the variant that fits this system; import nothing.

    Returns:
        The directory of the variant.

    Raises:
        As :func:`get_kernel`, but for ImportError.
    """
    from kernels.choose import choose_variant
    from kernels.local import choose_local

    settings = read_settings()
    if local_files_only:
        settings = settings._replace(offline=True)
    ref = parse_ref(repo_id, revision, version)
    kind = _backend_kind(backend)
    if (override := settings.overrides.get(repo_id)) is not None:
        return choose_local(override, backend=kind).path
    located = locate(ref, settings, user_agent=user_agent)
    chosen = choose_variant(located, settings, kind, check_arch=False)
    _require_trust(located, settings, trust_remote_code)
    return _install(chosen, settings).path


def get_kernel_variants(
    repo_id: str,
    revision: str | None = None,
    *,
    version: int | None = None,
    backend: str | None = None,
) -> list[Decision]:
    """Judge every variant of a kernel: the fitting ones first, best first, then why the others do not.

    Raises:
        As :func:`get_kernel`, where the kernel is not found.
    """
    settings = read_settings()
    ref = parse_ref(repo_id, revision, version)
    kind = _backend_kind(backend)
    if (override := settings.overrides.get(repo_id)) is not None:
        from kernels.local import decide_local

        return list(decide_local(override, backend=kind))
    from kernel_spec.compat import decide
    from kernels.system import detect

    located = locate(ref, settings)
    return list(decide(detect(), variants_of(located.files), backend=kind))


def parse_ref(repo_id: str, revision: str | None, version: int | None) -> KernelRef:
    """Read what a call asks for.

    Raises:
        UsageError: ``repo_id`` is not ``owner/name``, both a version and a revision, a version
            that is no number, or another argument that is no text.
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
    if version is not None and (
        isinstance(version, bool) or not isinstance(version, int) or version < 0
    ):
        raise UsageError(
            f"{repo_id}: version: expected a number such as 1 (the branch v1), found {version!r}."
        )
    try:
        repo = parse_repo_id(repo_id)
    except FormatError as err:
        raise UsageError(f"{err}.") from err
    return KernelRef(repo, version, revision or None)


def forget() -> None:
    """Forget every remembered answer, so that the next call looks again; modules stay loaded."""
    _remembered.clear()
    answers.forget()


def _recall(key: object) -> ModuleType | None:
    known = _remembered.get(key)
    if known is None:
        return None
    if known.hub is not None:
        return known.module if known.hub.stamp(known.repo) == known.stamp else None
    if known.stamp is not None:
        from kernels.local import quick_stamp

        return known.module if quick_stamp(known.path) == known.stamp else None
    return known.module if time.time() < known.expires else None


def _load_path(
    path: Path,
    backend: BackendKind | None,
    clock: Clock,
    *,
    check_arch: bool,
    key: object = None,
    repo: RepoId | None = None,
) -> LoadTrace:
    from kernels.local import choose_local, quick_stamp

    variant = choose_local(path, backend=backend, check_arch=check_arch)
    clock.lap("choose")
    kernel = import_variant(variant, None)
    clock.lap("import")
    if key is not None and repo is not None:
        _remembered[key] = _Remembered(
            module=kernel.module,
            repo=repo,
            hub=None,
            stamp=quick_stamp(variant.path),
            expires=0.0,
            path=variant.path,
        )
    return LoadTrace(
        kernel=kernel,
        path=variant.path,
        source=str(path),
        downloaded=False,
        phases=tuple(clock.phases),
    )


def _backend_kind(word: str | None) -> BackendKind | None:
    if word is None:
        return None
    from kernels.fit import parse_backend_word

    return parse_backend_word(word)


def _require_trust(
    located: Located, settings: Settings, consent: Trust, *, refresh: bool = False
) -> None:
    if not located.hub.is_directory:
        from kernels.trust import require_trust

        require_trust(located, settings, consent, refresh=refresh)


def _install(chosen: Chosen, settings: Settings) -> VariantDir:
    if chosen.installed is not None:
        return chosen.installed
    from kernels.install import install

    return install(Store(settings.cache), chosen.wanted, settings.state, have=chosen.have)
