"""The command ``kernels``: each verb is a module of this package, imported when it is used."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from kernel_spec.command import run as run_command
from kernels._version import __version__

VERBS = {
    "benchmark": "Time a kernel on this machine, beside its peers.",
    "bundle": "Carry kernels to machines that reach no hub, in one file.",
    "cache": "Look at the cache, verify it, and remove what is no longer used.",
    "check": "Check that a published kernel keeps the rules of the format.",
    "doctor": "Say why a kernel does not load here, and what to do.",
    "download": "Bring what a project's lock names into the cache.",
    "info": "Show what a kernel says of itself.",
    "lock": "Write which commit of every kernel a project uses.",
    "to-wheel": "Write one wheel for each build variant of a kernel.",
    "trust": "Say whose kernels may run.",
    "update": "Ask the hubs again and bring cached kernels up to date.",
    "verify": "Hash every byte of a kernel on this machine.",
    "verify-signature": "Say what proves who made a kernel, and what does not.",
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
        verb: click.Command = import_module(f"kernels.cli.{cmd_name.replace('-', '_')}").command
        return verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or name the one that was probably meant."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], VERBS, n=1)
            meant = f"did you mean {close[0]}?" if close else f"expected {', '.join(VERBS)}"
            ctx.fail(f"no command {args[0]!r}; {meant}")
        return super().resolve_command(ctx, args)

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
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code; errors go to stderr."""
    return run_command(kernels, arguments, name="kernels", json_errors=True)
