"""The options of every command that compiles: where headers come from, the sandbox, the lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from kernel_builder.settings import SandboxMode, Settings, read_settings

_Command = TypeVar("_Command", bound=Callable[..., Any])


def input_options(command: _Command) -> _Command:
    """Add ``--source``, ``--sandbox`` and ``--locked``."""
    command = click.option(
        "--locked",
        is_flag=True,
        help="Refuse a build without kernel-builder.lock, or with anything else than it says.",
    )(command)
    return source_option(sandbox_option(command))


def sandbox_option(command: _Command) -> _Command:
    """Add ``--sandbox``."""
    return click.option(
        "--sandbox",
        type=click.Choice([mode.value for mode in SandboxMode]),
        help="Separate compilers from network and home: auto (where possible), require, off "
        "[default: KERNEL_BUILDER_SANDBOX, else auto].",
    )(command)


def source_option(command: _Command) -> _Command:
    """Add ``--source``, as often as wanted."""
    return click.option(
        "--source",
        "sources",
        multiple=True,
        metavar="NAME=PATH",
        help="An archive or directory with the headers of this dependency.",
    )(command)


def read_input_settings(
    *, cuda_home: Path | None = None, sandbox: str | None = None, sources: Iterable[str] = ()
) -> Settings:
    """Read the settings, and what these options say over them.

    Raises:
        ToolchainError: ``--source`` names no file or directory.
    """
    from kernel_builder.depends import read_local_sources

    settings = read_settings(cuda_home=cuda_home)
    return replace(
        settings,
        sandbox=settings.sandbox if sandbox is None else SandboxMode(sandbox),
        local_sources=read_local_sources(sources),
    )
