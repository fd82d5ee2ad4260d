"""``kernel-builder devshell`` and ``testshell``: a command in an environment of its own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from kernel_builder.cli.frame import cuda_option, project_argument

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


def _enter(
    directory: Path,
    *,
    variant: str | None,
    torch: str | None,
    extras: tuple[str, ...],
    cuda_home: Path | None,
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


def _make_command(name: str, help_text: str, *, tests: bool) -> click.Command:
    """Make a command that enters a shell; `tests`: one where the variant is built and can be loaded."""
    options = (
        project_argument,
        click.option("--variant", metavar="NAME", help="The variant that it is for."),
        click.option(
            "--torch",
            metavar="VERSION",
            help="The version of torch [default: the builder's own, where it fits].",
        ),
        click.option(
            "--with",
            "extras",
            multiple=True,
            metavar="REQUIREMENT",
            help="A package besides, as pip reads it.",
        ),
        cuda_option,
    )
    command: Any = partial(_enter, tests=tests)
    for option in reversed(options):
        command = option(command)
    return click.command(name, cls=_ShellCommand, help=help_text)(command)


devshell = _make_command(
    "devshell",
    "Open a shell, or run a command, where DIR can be built: torch, CMake, Ninja, the toolkit.",
    tests=False,
)
testshell = _make_command(
    "testshell",
    "Open a shell, or run a command, where the variant is built and get_kernel finds it.",
    tests=True,
)
