"""What lies in ``build/``, read and checked, as that which is published."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.check.variant import check_variant, find_variants
from kernel_builder.config.model import FILE_NAME as BUILD_TOML
from kernel_builder.config.model import Build
from kernel_builder.config.read import read_build
from kernel_builder.errors import ProjectError, UploadError
from kernel_builder.plan import current_op_id
from kernel_builder.sources import read_sources
from kernel_spec.errors import UsageError
from kernel_spec.metadata import FILE_NAME as METADATA
from kernel_spec.metadata import Metadata, parse_metadata
from kernel_spec.names import RepoId


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltVariant:
    """A variant that has passed every check."""

    directory: Path
    metadata: Metadata


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """What is published together: variants of one kernel in one version.

    Attributes:
        directory: the project, or a directory of built variants alone.
        build: what ``build.toml`` says; None where there is none.
        name: the kernel's name.
        version: its version.
        variants: its variants, by name.
    """

    directory: Path
    build: Build | None
    name: str
    version: int
    variants: tuple[BuiltVariant, ...]

    @property
    def branch(self) -> str:
        """The branch that it belongs on."""
        stated = None if self.build is None else self.build.general.branch
        return stated or f"v{self.version}"

    @property
    def repo_id(self) -> RepoId | None:
        """The repository that the project names."""
        return None if self.build is None else self.build.general.repo_id


def read_package(directory: Path, *, only: Collection[str] = ()) -> Package:
    """Read a project with its ``build/``, or a directory with built variants and no ``build.toml``.

    Args:
        directory: the project, or the directory of built variants.
        only: the names of the variants to read; empty: all.

    Raises:
        ConfigError, ProjectError: the project is wrong.
        UsageError: a variant of ``only`` is not built.
        UploadError: nothing is built, some variants break rules or are not of these sources;
            every finding is named.
    """
    if (directory / BUILD_TOML).is_file():
        build = read_build(directory)
        places = sorted(path.parent for path in (directory / "build").glob(f"*/{METADATA}"))
        if not places:
            raise UploadError(
                f"{directory / 'build'}: nothing is built; run: kernel-builder build {directory}"
            )
        places = _select(places, only)
        variants = _read_variants(places, build, again=f"run: kernel-builder build {directory}")
        _refuse_stale(directory, build, variants)
        name, version = build.general.name, build.general.version
    else:
        build = None
        try:
            places = list(find_variants(directory))
        except ProjectError as err:
            raise ProjectError(
                f"{directory}: neither a project (there is no {BUILD_TOML}) nor built variants "
                f"(no build/*/{METADATA}); expected one of them"
            ) from err
        variants = _read_variants(_select(places, only), None, again="build them again")
        name, version = _agree(directory, variants)
    return Package(directory=directory, build=build, name=name, version=version, variants=variants)


def _select(places: list[Path], only: Collection[str]) -> list[Path]:
    missing = sorted(set(only) - {place.name for place in places})
    if missing:
        built = ", ".join(place.name for place in places)
        raise UsageError(f"--variant: {', '.join(missing)} is not built; found {built}")
    return [place for place in places if not only or place.name in only]


def _read_variants(
    places: Iterable[Path], build: Build | None, *, again: str
) -> tuple[BuiltVariant, ...]:
    faults: list[str] = []
    variants = []
    for place in places:
        findings = check_variant(place.resolve())
        faults += [f"{place.name}: {finding}" for finding in findings]
        if findings:
            continue
        metadata = parse_metadata((place / METADATA).read_bytes())
        if build is not None:
            faults += [f"{place.name}: {fault}" for fault in _differences(metadata, build)]
        variants.append(BuiltVariant(directory=place, metadata=metadata))
    if faults:
        raise UploadError("\n".join([*faults, f"nothing was published; {again}"]))
    return tuple(variants)


def _differences(metadata: Metadata, build: Build) -> list[str]:
    """Say where a variant is of another kernel or version than the project."""
    general = build.general
    faults = []
    if metadata.name != general.name:
        faults.append(f'it is of the kernel "{metadata.name}"; expected "{general.name}"')
    if metadata.version != general.version:
        faults.append(
            f"it was built as version {metadata.version}; build.toml says {general.version}"
        )
    return faults


def _agree(directory: Path, variants: Iterable[BuiltVariant]) -> tuple[str, int]:
    """Return the name and version that all variants have."""
    found = {(each.metadata.name, each.metadata.version) for each in variants}
    if len(found) > 1:
        shown = ", ".join(f"{name} version {version}" for name, version in sorted(found))
        raise UploadError(
            f"{directory}: variants of different kernels or versions ({shown}); publish each alone"
        )
    return found.pop()


def _refuse_stale(project: Path, build: Build, variants: Iterable[BuiltVariant]) -> None:
    """Refuse variants that were built from other sources than those that are here now."""
    sources = read_sources(project, build)
    stale = [
        each.directory.name
        for each in variants
        if each.metadata.id != current_op_id(build, sources, each.metadata.backend)
    ]
    if stale:
        raise UploadError(
            "\n".join(f"{name} was built from other sources than those here now" for name in stale)
            + f"\nnothing was published; run: kernel-builder build {project}"
        )
