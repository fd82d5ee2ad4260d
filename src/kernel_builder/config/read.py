"""Reading ``build.toml``: every fault of every kind at once, or the value that it means."""

from __future__ import annotations

from pathlib import Path

from kernel_builder.config.model import Build


def read_build(project: Path) -> Build:
    """Read the ``build.toml`` of a project (its directory, or the file itself).

    Raises:
        ConfigError: with every fault.
        ProjectError: there is no such file.
    """
    raise NotImplementedError
