"""Who built a variant, and from which commit: named only where every file of the project is in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernel_builder.config.model import FILE_NAME
from kernel_builder.errors import CommandError
from kernel_builder.git import run_git
from kernel_builder.settings import Settings
from kernel_builder.sources import SourceSet
from kernel_spec.provenance import Provenance

# What builds leave in a project is no source of it.
_OWN = (".", ":(exclude)build")


def describe_builder() -> Provenance:
    """Say who builds."""
    from kernels._version import __version__

    return Provenance(builder_version=__version__)


def describe_origin(project: Path, sources: SourceSet, settings: Settings) -> Provenance:
    """Say who builds, and from which commit where that is known.

    It is the last commit that changed the project: a commit elsewhere in the repository leaves
    the bytes of a variant as they are. No commit is named where a file differs from it, is not in
    it, or the project is in no git repository. That a variant comes from certain sources is
    proved by its id, which is their hash; the commit says where to find them.
    """
    commit = find_commit(project, sources, settings)
    builder = describe_builder()
    return builder if commit is None else replace(builder, kernel_commit=commit, kernel_dirty=False)


def find_commit(project: Path, sources: SourceSet, settings: Settings) -> str | None:
    """Return the last commit that changed a project, or None where it is not what is here."""

    def ask(*words: str) -> str:
        return run_git(*words, "--", *_OWN, settings=settings, place=project).output

    try:
        if ask("status", "--porcelain"):
            return None
        tracked = set(ask("ls-files", "-z").split("\0"))
        used = {FILE_NAME, *(file.path for file in (*sources.listed, *sources.extension))}
        if not used <= tracked:
            return None
        return ask("log", "-1", "--format=%H").strip() or None
    except CommandError:
        # No git, no repository, or none with a commit.
        return None
