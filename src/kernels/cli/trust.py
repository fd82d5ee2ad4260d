"""``kernels trust``: whose kernels, and which variants, run without being asked for, for good."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from kernel_spec.command import say_note

if TYPE_CHECKING:
    from kernels.trust import TrustedOwner

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_OWNER = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)


@click.group(name="trust")
def command() -> None:
    """Say whose kernels may run. To load a kernel is to run its code with your rights."""


@command.command(name="add")
@click.argument("owner")
@click.option("--hub", help="The hub of that owner; default: those of KERNELS_HUB.")
def add(owner: str, hub: str | None) -> None:
    """Trust the kernels of OWNER on a hub.

    OWNER may also be the digest of a variant, 64 hex digits as `kernels cache list --json` and
    kernels.lock show them: those very bytes are trusted, whoever publishes them.
    """
    from kernels.settings import read_settings
    from kernels.trust import read_trusted, write_trusted

    config = read_settings().config
    known = read_trusted(config)
    if _is_digest(owner, hub):
        write_trusted(config, known._replace(digests=known.digests | {owner}))
        click.echo(f"trusting the variant {owner}")
        return
    entries = _entries(owner, hub)
    write_trusted(config, known._replace(owners=known.owners | entries))
    for entry in sorted(entries):
        click.echo(f"trusting {entry.owner} on {entry.hub}")


@command.command(name="remove")
@click.argument("owner")
@click.option("--hub", help="The hub of that owner; default: every hub.")
def remove(owner: str, hub: str | None) -> None:
    """No longer trust OWNER, or the variant of that digest; fails where there was no trust."""
    from kernels.settings import read_settings
    from kernels.trust import read_trusted, write_trusted

    config = read_settings().config
    known = read_trusted(config)
    if _is_digest(owner, hub) and owner in known.digests:
        write_trusted(config, known._replace(digests=known.digests - {owner}))
        click.echo(f"no longer trusting the variant {owner}")
        return
    gone = {e for e in known.owners if e.owner == owner and hub in {None, e.hub}}
    if not gone:
        raise click.ClickException(f"{owner} is not trusted{f' on {hub}' if hub else ''}.")
    write_trusted(config, known._replace(owners=known.owners - gone))
    for entry in sorted(gone):
        click.echo(f"no longer trusting {entry.owner} on {entry.hub}")


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """List the owners and the variants that are trusted for good."""
    from kernels.settings import read_settings
    from kernels.trust import read_trusted

    known = read_trusted(read_settings().config)
    if as_json:
        owners = [{"owner": e.owner, "hub": e.hub} for e in sorted(known.owners)]
        digests = [{"digest": digest} for digest in sorted(known.digests)]
        click.echo(json.dumps([*owners, *digests], indent=2))
        return
    for entry in sorted(known.owners):
        click.echo(f"{entry.owner} on {entry.hub}")
    for digest in sorted(known.digests):
        click.echo(f"the variant {digest}")
    if not known.owners and not known.digests:
        say_note(
            "nobody is trusted for good; trusted all the same are directory hubs of KERNELS_HUB and "
            "whom a hub calls a trusted publisher"
        )


def _is_digest(text: str, hub: str | None) -> bool:
    return hub is None and _DIGEST.fullmatch(text) is not None


def _entries(owner: str, hub: str | None) -> frozenset[TrustedOwner]:
    from kernels.settings import hubs_of, parse_hubs, read_settings
    from kernels.trust import TrustedOwner

    if _OWNER.fullmatch(owner) is None:
        raise click.UsageError(f"{owner!r} is not an owner; expected the part of an id before '/'.")
    hubs = parse_hubs(hub) if hub else hubs_of(read_settings(), owner)
    found = frozenset(TrustedOwner(owner, e.url) for e in hubs if not e.url.startswith("file://"))
    if not found:
        raise click.UsageError(
            "a directory hub that KERNELS_HUB names is trusted already; give another one with --hub."
        )
    return found
