"""What all commands share: verbs loaded on demand, one way to fail, and the arguments they repeat."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click

from kernel_spec.command import describe_os_error
from kernel_spec.command import run as run_command
from kernel_spec.errors import KernelError

_Command = TypeVar("_Command", bound=Callable[..., Any])


class LazyGroup(click.Group):
    """A group of verbs whose modules are imported when they are called or described."""

    def __init__(self, name: str, *, verbs: Mapping[str, str], help: str) -> None:  # noqa: A002
        options: list[click.Parameter] = [
            click.Option(
                ["--version"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=_print_version,
                help="Show the version and exit.",
            ),
            # run() takes it from anywhere on the line; this makes the help name it.
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                help="Show where in the program an error comes from.",
            ),
        ]
        settings = {"help_option_names": ["-h", "--help"]}
        super().__init__(name, help=help, params=options, context_settings=settings)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """List the verbs in the order of the work."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a verb."""
        place = self._verbs.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs, each with its whole first sentence."""
        found = ((name, self.get_command(ctx, name)) for name in self._verbs)
        rows = [(name, verb.get_short_help_str(limit=1000)) for name, verb in found if verb]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or name the one that was probably meant."""
        if args[0] not in self._verbs and not args[0].startswith("-"):
            close = get_close_matches(args[0], self._verbs, n=1)
            meant = f"did you mean {close[0]}?" if close else f"expected {', '.join(self._verbs)}"
            ctx.fail(f"no command {args[0]!r}; {meant}")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from kernels._version import __version__

        click.echo(f"{ctx.info_name} {__version__}")
        ctx.exit()


def run(group: click.Group) -> None:
    """Run a command line; does not return."""
    sys.exit(run_command(group, sys.argv[1:], name=str(group.name), explain=_explain))


def _explain(error: Exception) -> str | None:
    """Say what the system refused, and where the builder's cache is if that may help."""
    from kernel_builder.settings import read_settings

    if not isinstance(error, OSError) or isinstance(error, KernelError):
        return None
    cache = read_settings().cache
    places = [str(each) for each in (error.filename, error.filename2) if each is not None]
    said = describe_os_error(error)
    if not places or any(each.startswith(str(cache.parent)) for each in places):
        said += f"; the builder's cache is {cache}, and XDG_CACHE_HOME names another place for it"
    return f"{said} (--debug shows where)"


def project_argument(command: _Command) -> _Command:
    """Add the argument ``[DIR]``: a project, or its ``build.toml``; default: the current one."""
    kind = click.Path(path_type=Path)
    return click.argument("directory", metavar="[DIR]", type=kind, default=Path())(command)


def place_of(directory: Path) -> Path:
    """Return the directory that ``[DIR]`` means, whether a project is there or built variants alone."""
    from kernel_builder.config.model import FILE_NAME

    return directory.parent if directory.name == FILE_NAME else directory


def cuda_option(command: _Command) -> _Command:
    """Add ``--cuda-home``: the user's own toolkit in place of the pinned one."""
    return click.option(
        "--cuda-home",
        type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
        metavar="PATH",
        help="An installed CUDA toolkit [default: fetched on first use].",
    )(command)


def json_option(command: _Command) -> _Command:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(command)
