"""The command ``kernels``: finds the verb, runs it, turns errors into one message and an exit code.

Each verb is a module of this package and is imported when it is used. Exit codes: 0 done,
1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from kernel_spec.errors import KernelError
from kernels._version import __version__

VERBS = {
    "benchmark": "Time a kernel on this machine, beside its peers.",
    "bundle": "Carry kernels to machines that reach no hub, in one file.",
    "cache": "Look at, and verify, the cache.",
    "check": "Check that a published kernel keeps the rules of the format.",
    "doctor": "Say why a kernel does not load here, and what to do.",
    "download": "Bring what a project's lock names into the cache.",
    "info": "Show what a kernel says of itself.",
    "lock": "Write which commit of every kernel a project uses.",
    "to-wheel": "Write one wheel for each build variant of a kernel.",
    "trust": "Say whose kernels may run.",
    "update": "Ask the hubs again and bring cached kernels up to date.",
    "verify": "Hash every byte of a kernel on this machine.",
    "upload": "Publish what is built.",
    "versions": "List a kernel's versions and which of their variants fit this system.",
}


class _Verbs(click.Group):
    """A group whose verbs are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the verbs."""
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"kernels.cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(VERBS.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kernels", message="%(prog)s %(version)s")
@click.option(
    "--debug", is_flag=True, help="Show the traceback of an error; works after a verb, too."
)
def kernels(debug: bool) -> None:
    """Find, load and look after compute kernels."""
    del debug


def main(argv: list[str] | None = None) -> None:
    """Run the command and exit."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    sys.exit(run(arguments, debug=debug))


def run(arguments: list[str], *, debug: bool = False) -> int:
    """Run the command and return its exit code; errors go to stderr."""
    try:
        code = kernels.main(arguments, prog_name="kernels", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.Abort:
        return _say("interrupted", 130)
    except click.ClickException as err:
        err.show()
        return err.exit_code
    except KernelError as err:
        if debug:
            raise
        return _say(str(err), err.exit_code)
    except Exception as err:
        if debug:
            raise
        return _say(f"{type(err).__name__}: {err} (--debug shows where)", 1)
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    click.echo(f"kernels: {message}", err=True)
    return code
