"""The story of an export: ``build.toml`` → plan → texts → files beside the sources, all or none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_builder.config.model import FILE_NAME, Build
from kernel_builder.config.read import read_build
from kernel_builder.errors import ExportError
from kernel_builder.export.backends import plan_export
from kernel_builder.export.files import render_export
from kernel_builder.export.generated import find_manifest, find_obstacles, write_files
from kernel_builder.sources import SourceSet, read_sources
from kernel_spec.backend import BackendKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        target: the directory.
        files: the paths of the files in it, sorted.
        backends: the backends that they build.
        notes: what the author should know.
    """

    target: Path
    files: tuple[str, ...]
    backends: tuple[BackendKind, ...]
    notes: tuple[str, ...]


def export_project(
    project: Path,
    target: Path | None = None,
    *,
    backends: Iterable[BackendKind] = (),
    unique: str | None = None,
    force: bool = False,
) -> Exported:
    """Write what CMake and pip need to build a project: the same sources, flags and op ids as ours.

    Args:
        project: the directory of the project.
        target: where to write; another directory than the project also gets copies of the sources,
            so that it stands alone. None: the project itself.
        backends: only these; none: all.
        unique: the last part of the op ids in place of the hash of the sources.
        force: replace files that we did not write, or that were changed since.

    Raises:
        ConfigError, ProjectError, SelectionError, ArchError: the project cannot be planned.
        ExportError: files are in the way, or CMake cannot express the project; nothing is written.
        StorageError: the files cannot be written; none is.
    """
    target = project if target is None else target
    build = read_build(project)
    sources = read_sources(project, build)
    plan = plan_export(build, sources, backends=backends, unique=unique)
    files = dict(render_export(build, plan.backends, project=project))
    if target.resolve() != project.resolve():
        files = {**_copies(project, sources), **files}
    _refuse_obstacles(target, files, force=force)
    write_files(target, files, module=build.general.module)
    return Exported(
        target=target,
        files=tuple(sorted(files)),
        backends=tuple(each.backend for each in plan.backends),
        notes=(*plan.notes, *_notes(build)),
    )


def _copies(project: Path, sources: SourceSet) -> dict[str, bytes]:
    """Return the files of the project that a directory needs which stands alone."""
    paths = [FILE_NAME, *(file.path for file in (*sources.listed, *sources.extension))]
    return {path: (project / path).read_bytes() for path in paths}


def _refuse_obstacles(target: Path, files: dict[str, bytes], *, force: bool) -> None:
    """Refuse to replace what we did not write.

    Raises:
        ExportError: naming each file.
    """
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target}: this is a file; expected a directory, or none yet")
    old = find_manifest(target)
    obstacles = find_obstacles(target, files, old)
    folders = [path for path in files if (target / path).is_dir()]
    if folders:
        names = "".join(f"\n  {path}" for path in folders)
        raise ExportError(f"{target}: directories are where files are to be written{names}")
    if obstacles and not force:
        lines = [f"{target}: nothing was written, since these would be lost:"]
        known = old.files if old is not None else {}
        for path in obstacles:
            why = "changed since it was written" if path in known else "not written by us"
            lines.append(f"  {path} ({why})")
        lines.append("move them away, or replace them with --force")
        raise ExportError("\n".join(lines))


def _notes(build: Build) -> list[str]:
    """Say what a package of pip cannot carry."""
    depends = build.general.depends.kernels
    if not depends:
        return []
    names = ", ".join(str(each.repo_id) for each in depends)
    return [f"pip does not install the kernels that this one needs: {names}"]
