"""Who builds, and which commit of the kernel's sources is built."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_builder.errors import CommandError
from kernel_builder.process import run
from kernel_builder.settings import Settings
from kernel_spec.metadata import Provenance


def read_provenance(project: Path, settings: Settings) -> Provenance:
    """Say who builds a project, and from which commit.

    The commit is the last one that changed the project's own directory, so that work elsewhere in
    the same repository changes nothing. It is left out where files differ from it, where the
    history does not reach back to it (a shallow clone), and outside git.
    """
    from kernels._version import __version__

    commit = _find_commit(project, settings)
    return Provenance(
        builder_version=__version__,
        kernel_commit=commit,
        kernel_dirty=None if commit is None else False,
    )


def _find_commit(project: Path, settings: Settings) -> str | None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(project), "-c", "core.fsmonitor=false", *arguments]
        return run(command, variables=settings.variables, timeout=30).output.strip()

    try:
        if git("rev-parse", "--is-shallow-repository") != "false":
            return None
        if git("status", "--porcelain", "--", ".", ":(exclude)build"):
            return None
        commit = git("log", "-1", "--format=%H", "--", ".")
    except CommandError:
        return None
    return commit if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) else None
