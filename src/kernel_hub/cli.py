"""The command ``kernel-hub``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kernel_hub.settings import MAX_FILE_SIZE
from kernel_spec.command import run, say_warning


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    package_name="kernels", prog_name="kernel-hub", message="%(prog)s %(version)s"
)
@click.option("--debug", is_flag=True, help="Show where in the program an error comes from.")
def cli(debug: bool) -> None:
    """A hub of kernels on your own machine."""
    del debug  # taken from anywhere on the line; this makes the help name it


@cli.command()
@click.argument("root", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8600,
    show_default=True,
    help="Port to listen at; 0 takes a free one.",
)
@click.option(
    "--trusted-owner",
    "trusted_owners",
    multiple=True,
    metavar="ORG",
    help="Owner whose kernels clients run without asking; may be given several times.",
)
@click.option(
    "--public-url",
    metavar="URL",
    help="URL that clients use, where a proxy stands before this hub.",
)
@click.option(
    "--tokens",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the tokens whose holders may write [default: nobody may].",
)
@click.option(
    "--max-file-size",
    type=click.IntRange(min=1),
    default=MAX_FILE_SIZE,
    show_default=True,
    metavar="BYTES",
    help="Size of the largest file that is taken.",
)
@click.option("--access-log", is_flag=True, help="Write a line of JSON per request to stderr.")
def serve(
    *,
    root: Path,
    host: str,
    port: int,
    trusted_owners: tuple[str, ...],
    public_url: str | None,
    tokens: Path | None,
    max_file_size: int,
    access_log: bool,
) -> None:
    """Serve the directory hub at ROOT; without --tokens it is read-only.

    Clients use it with HF_ENDPOINT set to the URL that is printed once it listens.
    """
    import logging

    from kernel_hub.app import create_app
    from kernel_hub.server import serve as serve_app
    from kernel_hub.settings import HubSettings

    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.WARNING)
    if access_log:
        logging.getLogger("kernel_hub.access").setLevel(logging.INFO)
    settings = HubSettings(
        root=root,
        trusted_owners=frozenset(trusted_owners),
        public_url=public_url,
        tokens=tokens,
        max_file_size=max_file_size,
    )
    app = create_app(settings)
    if tokens is not None and not _is_private(host, public_url):
        say_warning(
            f"tokens come to {host} unencrypted: let a proxy with TLS stand before it and "
            "name its https URL by --public-url"
        )
    serve_app(
        app,
        host=host,
        port=port,
        on_listening=lambda url: click.echo(f"kernel-hub: serving {root} at {url}"),
    )


def _is_private(host: str, public_url: str | None) -> bool:
    """Say whether nobody can read along what clients send."""
    return host in {"127.0.0.1", "::1", "localhost"} or (public_url or "").startswith("https://")


@cli.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("name")
@click.option(
    "--owner",
    "owners",
    multiple=True,
    required=True,
    metavar="OWNER",
    help="Owner whose repositories the holder may write; may be given several times.",
)
@click.option(
    "--propose",
    is_flag=True,
    help="The holder may only ask for changes (pull requests), which a holder of another token merges.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    metavar="N",
    help="How many days it is good for, today among them [default: it does not expire].",
)
def add_token(
    *, file: Path, name: str, owners: tuple[str, ...], propose: bool, days: int | None
) -> None:
    """Make a token, print it once, and keep its hash in FILE under NAME.

    Whoever has it may write over HTTP, with HF_TOKEN set to it. A running hub knows it at once.
    """
    from kernel_hub.auth import Right
    from kernel_hub.auth import add_token as add

    may = Right.PROPOSE if propose else Right.WRITE
    click.echo(add(file, name=name, owners=owners, may=may, days=days))


def main() -> None:
    """Run the command; does not return."""
    sys.exit(run(cli, sys.argv[1:], name="kernel-hub", explain=_explain))


def _explain(error: Exception) -> str | None:
    if isinstance(error, ModuleNotFoundError) and error.name in {"starlette", "granian"}:
        return (
            f"the package {error.name} is not installed; serving needs the extra 'hub': "
            "pip install '.[hub]' in a checkout"
        )
    return None
