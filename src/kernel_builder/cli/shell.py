"""``kernel-builder devshell`` and ``testshell``: a command in an environment of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kernel_builder.cli.frame import cuda_option, project_argument

_Command = TypeVar("_Command", bound=Callable[..., Any])
_KEY = "kernel_builder.command"


class _ShellCommand(click.Command):
    """Keeps what follows ``--`` as it is: it is the user's command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command off the line before click reads it."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[_KEY] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Name the command in the usage."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def _shell_options(command: _Command) -> _Command:
    command = click.option(
        "--with",
        "extras",
        multiple=True,
        metavar="REQUIREMENT",
        help="A package besides, as pip reads it.",
    )(command)
    command = click.option(
        "--torch",
        metavar="VERSION",
        help="The version of torch [default: the builder's own, where it fits].",
    )(command)
    return click.option("--variant", metavar="NAME", help="The variant that it is for.")(command)


@click.command("devshell", cls=_ShellCommand)
@project_argument
@_shell_options
@cuda_option
def devshell(
    directory: Path,
    variant: str | None,
    torch: str | None,
    extras: tuple[str, ...],
    cuda_home: Path | None,
) -> None:
    """Open a shell, or run a command, where DIR can be built: torch, CMake, Ninja, the toolkit."""
    _enter(directory, variant, torch, extras, cuda_home, tests=False)


@click.command("testshell", cls=_ShellCommand)
@project_argument
@_shell_options
@cuda_option
def testshell(
    directory: Path,
    variant: str | None,
    torch: str | None,
    extras: tuple[str, ...],
    cuda_home: Path | None,
) -> None:
    """Open a shell, or run a command, where the variant is built and get_kernel finds it."""
    _enter(directory, variant, torch, extras, cuda_home, tests=True)


def _enter(
    directory: Path,
    variant: str | None,
    torch: str | None,
    extras: tuple[str, ...],
    cuda_home: Path | None,
    *,
    tests: bool,
) -> None:
    from kernel_builder.config.read import find_project
    from kernel_builder.settings import read_session, read_settings
    from kernel_builder.shell import ShellRequest, prepare_shell, run_shell

    shell = prepare_shell(
        ShellRequest(
            project=find_project(directory),
            variant=variant,
            torch=torch,
            extras=extras,
            command=click.get_current_context().meta.get(_KEY, ()),
            tests=tests,
        ),
        read_settings(cuda_home=cuda_home),
        session=read_session(),
        say=lambda line: click.echo(line, err=True),
    )
    sys.stdout.flush()
    run_shell(shell)
