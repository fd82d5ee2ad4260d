"""Finds a kernel and the kernels that it needs: which variant of each, before anything is downloaded.

A kernel comes from the first place that names it: a path of ``LOCAL_KERNELS``, the lock of
``KERNELS_LOCK`` or of the call, or the hubs. The kernels that its metadata names are found in the
same way; one that several need is found once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernel_spec.names import RepoId, parse_repo_id
from kernels.errors import DependencyError, DeviceError, ForbiddenError, NoVariantError
from kernels.loaded import Clock
from kernels.request import Found, Request, found_on_hub
from kernels.revision import KernelRef
from kernels.source import locate

if TYPE_CHECKING:
    from kernel_spec.metadata import KernelDependency


def resolve(ref: KernelRef, request: Request, clock: Clock | None = None) -> Found:
    """Find a kernel and, below it, every kernel that it needs; downloads only metadata.

    Raises:
        DependencyError: kernels need each other in a circle.
        ForbiddenError: the settings allow no kernel of a hub.
        NotLockedError: a lock is in force and does not name the kernel.
        SourceBuildError, TrustError: nothing fits, and a build was asked for and not possible.
        As ``source.locate``, ``choose.choose_variant`` and ``local.choose_local``.
    """
    return _with_dependencies(find(ref, request, clock or Clock()), request, (), {})


def resolve_path(path: Path, request: Request) -> Found:
    """Find the variant at a path and every kernel that it needs.

    Raises:
        As :func:`resolve`.
    """
    return _with_dependencies(_find_at(path, request), request, (), {})


def find(ref: KernelRef, request: Request, clock: Clock) -> Found:
    """Find a kernel by itself."""
    # `import kernels` leaves to the first call what only a call needs.
    from kernels.choose import choose_variant

    settings = request.settings
    if (override := settings.overrides.get(str(ref.repo))) is not None:
        found = _find_at(override, request, ref)
        clock.lap("choose")
        return found
    if settings.never:
        raise ForbiddenError(str(ref.repo))
    if request.lock is not None:
        from kernels.locked import find_locked

        found = find_locked(ref, request.lock, request)
        clock.lap("choose")
        return found
    located = locate(ref, settings, refresh=request.refresh, user_agent=request.user_agent)
    clock.lap("locate")
    try:
        chosen = choose_variant(located, settings, request.backend, check_arch=request.check_arch)
    except (NoVariantError, DeviceError) as err:
        if not request.build:
            raise
        from kernels.from_source import build_missing

        clock.lap("choose")
        built = build_missing(located, request, err)
        clock.lap("build")
        return Found(ref, built.metadata, located.hub.url, variant=built, located=located)
    clock.lap("choose")
    return found_on_hub(ref, located, chosen)


def dependency_ref(dependency: KernelDependency) -> KernelRef:
    """Return the request that a ``kernel-depends`` entry of a metadata document makes."""
    return KernelRef(
        parse_repo_id(dependency.repo_id), dependency.version, dependency.revision or None
    )


def _find_at(path: Path, request: Request, ref: KernelRef | None = None) -> Found:
    from kernels.local import choose_local

    variant = choose_local(path, backend=request.backend, check_arch=request.check_arch)
    return Found(
        ref=ref or KernelRef(RepoId("", variant.metadata.name)),
        metadata=variant.metadata,
        source=str(path),
        variant=variant,
    )


def _with_dependencies(
    found: Found, request: Request, trail: tuple[KernelRef, ...], known: dict[KernelRef, Found]
) -> Found:
    trail = (*trail, found.ref)
    dependencies = []
    for dependency in found.metadata.kernel_depends:
        ref = dependency_ref(dependency)
        if ref in trail:
            names = " -> ".join(map(str, (*trail[trail.index(ref) :], ref)))
            raise DependencyError(
                f"{trail[0]} needs kernels that need each other: {names}. One of them must be "
                "published without the other in its kernel-depends."
            )
        if ref not in known:
            below = find(ref, request, Clock())
            known[ref] = _with_dependencies(below, request, trail, known)
        dependencies.append(known[ref])
    return found._replace(dependencies=tuple(dependencies)) if dependencies else found
