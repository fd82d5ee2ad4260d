"""Builds the variant that a system lacks from the sources that its repository carries, once per host.

A repository carries its sources below ``src/`` (``kernel-builder upload --with-sources``), as the
project that they are: ``src/build.toml`` and what it names. They are the publisher's code like
a variant is, so the publisher is trusted before anything of them is fetched. The builder is reached
through the entry point group ``kernels.builder``. What it made is kept under a key of everything
that went in (the sources' hashes, torch, the devices, this client), so that the next process finds it
without a hub and without the builder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_spec.errors import KernelError
from kernel_spec.names import parse_safe_path
from kernel_spec.system import System
from kernel_spec.wire import TreeFile
from kernels import log
from kernels._version import __version__
from kernels.connect import reach
from kernels.errors import DeviceError, NoVariantError, SourceBuildError
from kernels.fetch import read_file
from kernels.install import adopt, begin_install, hold
from kernels.receive import receive, writing
from kernels.request import Request
from kernels.source import Located
from kernels.store import Store, find_built, read_sources, write_built, write_sources
from kernels.system import detect, detect_devices
from kernels.trust import require_trust
from kernels.variant_dir import VariantDir, read_variant
from kernels.verify import verify_installed

if TYPE_CHECKING:
    from kernel_spec.backend import BackendKind

FOLDER = "src"
GROUP, ENTRY = "kernels.builder", "build-fitting"
# A project of sources; the largest real one has four megabytes.
SOURCES_BYTES = 256 << 20


def build_missing(
    located: Located, request: Request, cause: NoVariantError | DeviceError
) -> VariantDir:
    """Return a variant that fits, built from the repository's sources now or before.

    Args:
        located: where the kernel is; none of its variants fits.
        request: how it is looked for, with the caller's consent.
        cause: why none fits.

    Raises:
        SourceBuildError: it carries no sources, there is no builder, or the build failed.
        TrustError: the publisher is not trusted.
        CacheError, HubUnreachableError, IntegrityError: as :func:`kernels.install.install`.
    """
    settings = request.settings
    if not located.hub.is_directory:
        require_trust(located, settings, request.consent, refresh=request.refresh)
    files = _list_sources(located, request)
    if not files:
        raise _failure(located, cause, f"{located.ref.repo} carries no sources to build one from.")
    store, system = Store(settings.cache), detect_devices(detect())
    key = key_of(files, system, request.backend)
    if (known := _find(store, key, settings.state)) is not None:
        return known
    what = f"builds {located.ref.repo} from its sources"
    with hold(store, key, what):
        if (known := _find(store, key, settings.state)) is not None:
            return known
        build = _find_builder(located, cause)
        log.logger().warning(
            "%s: no variant fits this system, building one from the sources of commit %s",
            located.ref,
            located.commit[:12],
        )
        # The builder keeps the objects and logs of a project by its path.
        with begin_install(store, key, "source") as place:
            _fetch(located, files, place)
            try:
                made = build(place, system, request.backend)
            except KernelError as err:
                raise _failure(located, cause, f"Its sources could not be built: {err}") from err
            variant = adopt(store, read_variant(made), settings.state)
        write_built(store, key, variant.digest)
    return variant


def key_of(files: tuple[TreeFile, ...], system: System, backend: BackendKind | None) -> str:
    """Return what names a build: 64 hex digits of the sources, the system and this client."""
    torch = system.torch
    facts: list[Any] = [
        __version__,
        sorted([file.path, file.size, file.sha256 or file.oid] for file in files),
        None if torch is None else [torch.version, torch.cxx11_abi],
        [str(system.backend), system.cpu, system.os, str(system.python), str(system.glibc)],
        [system.free_threaded, sorted({device.arch for device in system.devices})],
        None if backend is None else backend.value,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _list_sources(located: Located, request: Request) -> tuple[TreeFile, ...]:
    """Return the sources of a commit, with paths from the project's root; remembered, or asked for."""
    repo, settings = located.ref.repo, request.settings
    store = Store(settings.cache)
    files = read_sources(store, located.hub.url, repo, located.commit)
    if files is None:
        if reach(located.hub, repo, settings).offline:
            return ()
        listed = located.hub.read_tree(repo, located.commit, FOLDER)
        top = f"{FOLDER}/"
        files = tuple(
            file._replace(path=file.path.removeprefix(top))
            for file in listed
            if file.path.startswith(top)
        )
        write_sources(store, located.hub.url, repo, located.commit, files)
    return files


def _find(store: Store, key: str, state: Path) -> VariantDir | None:
    digest = find_built(store, key)
    if digest is None:
        return None
    # One that is damaged is built again, and replaced then.
    found = verify_installed(store.folder("variants") / digest, state)
    return found if isinstance(found, VariantDir) else None


def _fetch(located: Located, files: tuple[TreeFile, ...], project: Path) -> None:
    if sum(file.size for file in files) > SOURCES_BYTES:
        raise SourceBuildError(
            str(located.ref.repo),
            f"{located.ref.repo}: its sources have more than {SOURCES_BYTES >> 20} MiB.",
        )
    for file in files:
        parse_safe_path(file.path)
    for file in files:
        target = project / file.path
        whole = file._replace(path=f"{FOLDER}/{file.path}")
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)

        def read(whole: TreeFile = whole) -> Any:
            return read_file(located.hub, located.ref.repo, located.commit, whole)

        receive(read, target, located.hub, executable=file.executable)


def _find_builder(
    located: Located, cause: NoVariantError | DeviceError
) -> Callable[[Path, System, BackendKind | None], Path]:
    from importlib.metadata import entry_points

    try:
        [entry] = entry_points(group=GROUP, name=ENTRY)
        build: Callable[[Path, System, BackendKind | None], Path] = entry.load()
    except (ValueError, ImportError):
        raise _failure(
            located,
            cause,
            "It carries its sources, and the builder, which would build one from them, is not "
            "installed: pip install 'kernels[builder]'",
        ) from None
    return build


def _failure(located: Located, cause: NoVariantError | DeviceError, why: str) -> SourceBuildError:
    decisions = cause.decisions if isinstance(cause, NoVariantError) else ()
    return SourceBuildError(str(located.ref.repo), f"{cause}\n{why}", decisions)
