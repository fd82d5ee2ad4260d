"""Native dependencies: where the headers of each name under ``depends`` come from, pinned by hash."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from kernel_builder.archives import (
    ArchiveStore,
    copy_archive,
    download,
    fetch_tree,
    hash_tree,
)
from kernel_builder.config.model import Build, HeaderSource
from kernel_builder.errors import ArchiveError, CommandError, ToolchainError
from kernel_builder.known import read_known
from kernel_builder.process import run
from kernel_builder.settings import Settings
from kernel_builder.toolchain.tvm_ffi import describe_pinned
from kernel_builder.toolchain.wheels import explain_pip
from kernel_spec.backend import BackendKind
from kernel_spec.errors import UsageError

# What every build has anyway.
_BUILT_IN = frozenset({"torch"})
# Where a checkout of CUTLASS keeps its headers.
_CUTLASS: tuple[str, ...] = ("include", "tools/util/include")
_SECONDS = 1800


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where the headers of a dependency come from.

    Attributes:
        name: the name under ``depends``.
        version: the release, or an empty text.
        origin: a URL, a distribution, or ``local``.
        sha256: the hash of the archive; of a local directory, the hash of its headers.
        include: directories of it to search for headers.
        license: the licence of the headers.
        local: the directory that ``--source`` gives, or None.
    """

    name: str
    version: str
    origin: str
    sha256: str
    include: tuple[str, ...]
    license: str
    local: Path | None = None

    @property
    def record(self) -> dict[str, str]:
        """What a lock and a variant's metadata say of it."""
        facts = {
            "license": self.license,
            "origin": self.origin,
            "sha256": self.sha256,
            "version": self.version,
        }
        return {key: text for key, text in facts.items() if text}


@dataclass(frozen=True, kw_only=True, slots=True)
class Dependency:
    """A dependency whose headers are here.

    Attributes:
        origin: where they came from.
        root: the directory that they were unpacked to.
    """

    origin: Origin
    root: Path

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """The directories to search for headers."""
        return tuple(self.root / path for path in self.origin.include)


@cache
def _read_pinned() -> dict[str, Origin]:
    """Return the wheels with headers that this builder pins, by name under ``depends``."""
    data = tomllib.loads((files("kernel_builder") / "depends.toml").read_text("utf-8"))
    return {
        name: Origin(
            name=name,
            version=row["version"],
            origin=row["distribution"],
            sha256=row["sha256"],
            include=tuple(row["include"]),
            license=row["license"],
        )
        for name, row in data.items()
    }


def find_origins(
    names: Iterable[str], sources: Iterable[HeaderSource], settings: Settings
) -> tuple[Origin, ...]:
    """Return where the headers of these dependencies come from, sorted by name; fetches nothing.

    A ``[sources]`` table comes before what this builder pins, so that a project may choose.

    Raises:
        ToolchainError: naming each dependency that comes from nowhere.
    """
    origins, faults = _look_up(names, sources, settings)
    if faults:
        raise ToolchainError("\n".join(faults))
    return origins


def _look_up(
    names: Iterable[str], sources: Iterable[HeaderSource], settings: Settings
) -> tuple[tuple[Origin, ...], tuple[str, ...]]:
    """Return where dependencies come from, and of each that comes from nowhere what to do."""
    declared = {source.name: source for source in sources}
    found = [
        _find_origin(name, declared.get(name), settings) for name in sorted(set(names) - _BUILT_IN)
    ]
    origins = tuple(each for each in found if isinstance(each, Origin))
    return origins, tuple(each for each in found if isinstance(each, str))


def _find_origin(name: str, declared: HeaderSource | None, settings: Settings) -> Origin | str:
    """Return where a dependency comes from, or what to do where it comes from nowhere."""
    published = _read_pinned().get(name) if declared is None else _as_origin(declared)
    given = settings.local_sources.get(name)
    if given is not None and given.is_dir():
        # A checkout has the layout of the release, not that of an archive or a wheel.
        usual = _CUTLASS if name.startswith("cutlass_") else (".",)
        include = usual if declared is None else declared.include
        license_ = "unknown" if published is None else published.license
        return _read_checkout(name, given, include=include, license_=license_)
    if published is not None:
        return published
    release = read_known().native_depends.get(name, "")
    what = f"{name} (release {release})" if release else name
    return (
        f"{what} is in no wheel that this version knows. Say where it comes from: [sources.{name}] in "
        "build.toml with url, sha256, include and license; or build with "
        f"--source {name}=DIRECTORY, a checkout of it"
    )


def _as_origin(source: HeaderSource) -> Origin:
    return Origin(
        name=source.name,
        version="",
        origin=source.url,
        sha256=source.sha256,
        include=source.include,
        license=source.license,
    )


def _read_checkout(
    name: str, place: Path, *, include: tuple[str, ...], license_: str
) -> Origin | str:
    missing = [path for path in include if not (place / path).is_dir()]
    if missing:
        return f"--source {name}={place}: it has no directory {', '.join(missing)}"
    return Origin(
        name=name,
        version=read_known().native_depends.get(name, ""),
        origin="local",
        sha256=hash_tree(place, include),
        include=include,
        license=license_,
        local=place,
    )


def fetch_dependency(origin: Origin, settings: Settings) -> Dependency:
    """Return a dependency with its headers, which are fetched at the first time.

    Raises:
        ArchiveError: it cannot be had, has another hash, or holds what is unsafe.
    """
    if origin.local is not None:
        return Dependency(origin=origin, root=origin.local)
    given = settings.local_sources.get(origin.name)

    def get(target: Path) -> None:
        if given is not None:
            copy_archive(given, target, name=origin.name)
        elif "://" in origin.origin:
            download(origin.origin, target, name=origin.name)
        else:
            _download_wheel(origin, target, settings)

    root = fetch_tree(
        ArchiveStore(settings.cache / "sources"),
        origin.sha256,
        origin.include,
        name=origin.name,
        get=get,
    )
    return Dependency(origin=origin, root=root)


def _download_wheel(origin: Origin, target: Path, settings: Settings) -> None:
    directory = target.parent / "wheel"
    directory.mkdir()
    listed = target.parent / "requirements.txt"
    pinned = f"{origin.origin}=={origin.version}"
    listed.write_text(f"{pinned} --hash=sha256:{origin.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--dest", str(directory), "-r", str(listed)]
    try:
        run(command, variables=settings.for_pip, timeout=_SECONDS)
    except CommandError as err:
        raise ArchiveError(
            f"{origin.name}: {pinned} (sha256 {origin.sha256}) cannot be fetched with pip "
            f"({explain_pip(err)}); let pip reach a package index (PIP_INDEX_URL, PIP_FIND_LINKS), "
            f"run kernel-builder fetch once where it can, or give the wheel: --source {origin.name}=FILE"
        ) from err
    (wheel,) = directory.iterdir()
    wheel.replace(target)


def read_local_sources(texts: Iterable[str]) -> dict[str, Path]:
    """Read what ``--source NAME=PATH`` says.

    Raises:
        UsageError: texts are not of that form, or there is no such path; each is named.
    """
    found = {}
    faults = []
    for text in texts:
        name, equals, path = text.partition("=")
        place = Path(path).absolute()
        if not (equals and name and path):
            faults.append(f"--source {text}: expected NAME=PATH, an archive or a directory")
        elif not place.exists():
            faults.append(f"--source {text}: {place}: no such file or directory")
        elif name in found:
            faults.append(f"--source {text}: {name} is given twice; keep one")
        else:
            found[name] = place
    if faults:
        raise UsageError("\n".join(faults))
    return found


def check_local_sources(build: Build, settings: Settings) -> None:
    """Refuse what ``--source`` gives and no component depends on, such as a misspelt name.

    Raises:
        UsageError: naming each, and what there is.
    """
    known = sorted(_list_depends(build, tuple(BackendKind)) - _BUILT_IN)
    faults = []
    for name in sorted(set(settings.local_sources) - set(known)):
        close = get_close_matches(name, known, n=1)
        hint = f'; did you mean "{close[0]}"?' if close else ""
        there = ", ".join(known) or "nothing but torch"
        faults.append(f"--source {name}: no component depends on it; they depend on {there}{hint}")
    if faults:
        raise UsageError("\n".join(faults))


def list_sourceless(
    build: Build, backends: Iterable[BackendKind], settings: Settings
) -> tuple[str, ...]:
    """Say of each dependency of these backends that comes from nowhere so far what to do."""
    _, faults = _look_up(_list_depends(build, frozenset(backends)), build.sources, settings)
    return faults


def _list_depends(build: Build, backends: Collection[BackendKind]) -> set[str]:
    components = (each for each in build.components if each.backend in backends)
    return {name for component in components for name in component.depends}


def describe_depends(
    dependencies: Iterable[Dependency], *, tvm_ffi: bool = False
) -> dict[str, Any]:
    """Return what ``metadata.json`` says of the headers in a variant, under our own key.

    Args:
        dependencies: the dependencies of its components.
        tvm_ffi: whether it was built with the pinned TVM FFI.
    """
    found = {each.origin.name: each.origin.record for each in dependencies}
    found |= {"tvm-ffi": describe_pinned()} if tvm_ffi else {}
    return {"depends": found} if found else {}
