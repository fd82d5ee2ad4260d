"""git, in a way that no setting of a repository starts a program or asks a question."""

from __future__ import annotations

from pathlib import Path

from kernel_builder.process import Finished, run
from kernel_builder.settings import Settings

_SAFE = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.quotepath=false")
_SECONDS = 60


def run_git(
    *arguments: str | Path,
    settings: Settings,
    place: Path | None = None,
    seconds: float = _SECONDS,
    network: bool = False,
    check: bool = True,
) -> Finished:
    """Run git to its end.

    Args:
        arguments: what follows ``git``.
        settings: the environment of programs.
        place: the directory that it works in; None: that of this process.
        seconds: the longest time that it may take.
        network: whether it gets the user's proxies and certificates, as pip does.
        check: raise where the exit code is not 0.

    Raises:
        CommandError: there is no git, it ran too long, or (with ``check``) it failed.
    """
    command: list[str | Path] = ["git"]
    command += [] if place is None else ["-C", place]
    command += [word for setting in _SAFE for word in ("-c", setting)]
    variables = settings.for_pip if network else settings.variables
    return run(
        [*command, *arguments],
        variables={**variables, "GIT_TERMINAL_PROMPT": "0"},
        timeout=seconds,
        check=check,
    )
