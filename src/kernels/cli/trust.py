"""``kernels trust``: whose kernels, and which variants, run without being asked for, for good."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from kernel_spec.command import say_note
from kernel_spec.names import SHA256

if TYPE_CHECKING:
    from kernels.trust import Trusted, TrustedOwner

_OWNER = re.compile(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", re.ASCII)


@click.group(name="trust")
def command() -> None:
    """Say whose kernels may run. To load a kernel is to run its code with your rights."""


@command.command(name="add")
@click.argument("owner")
@click.option("--hub", help="The hub of that owner; default: those of KERNELS_HUB.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def add(owner: str, hub: str | None, as_json: bool) -> None:
    """Trust the kernels of OWNER on a hub.

    OWNER may also be the digest of a variant, 64 hex digits as `kernels cache list --json` and
    kernels.lock show them: those very bytes are trusted, whoever publishes them.
    """
    from kernels.settings import read_settings
    from kernels.trust import Trusted, editing_trusted, write_trusted

    if _is_digest(owner, hub):
        fresh = Trusted(digests=frozenset({owner}))
    else:
        fresh = Trusted(owners=_entries(owner, hub))
    config = read_settings().config
    with editing_trusted(config) as known:
        write_trusted(config, Trusted(known.owners | fresh.owners, known.digests | fresh.digests))
    _show("trusting", fresh, as_json=as_json)


@command.command(name="remove")
@click.argument("owner")
@click.option("--hub", help="The hub of that owner; default: every hub.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def remove(owner: str, hub: str | None, as_json: bool) -> None:
    """No longer trust OWNER, or the variant of that digest; fails where there was no trust."""
    from kernels.hub_address import parse_hubs
    from kernels.settings import read_settings
    from kernels.trust import Trusted, editing_trusted, write_trusted

    config = read_settings().config
    urls = [address.url for address in parse_hubs(hub or "", "--hub")]
    with editing_trusted(config) as known:
        if _is_digest(owner, hub) and owner in known.digests:
            gone = Trusted(digests=frozenset({owner}))
        else:
            named = (entry for entry in known.owners if entry.owner == owner)
            owners = frozenset(entry for entry in named if hub is None or entry.hub in urls)
            gone = Trusted(owners=owners)
        if gone == Trusted():
            where = f" on {', '.join(urls)}" if urls else ""
            raise click.ClickException(f"{owner} is not trusted{where}.")
        write_trusted(config, Trusted(known.owners - gone.owners, known.digests - gone.digests))
    _show("no longer trusting", gone, as_json=as_json)


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(as_json: bool) -> None:
    """List the owners and the variants that are trusted for good."""
    from kernels.settings import read_settings
    from kernels.trust import Trusted, read_trusted

    known = read_trusted(read_settings().config)
    _show("", known, as_json=as_json)
    if known == Trusted() and not as_json:
        say_note(
            "nobody is trusted for good; trusted all the same are directory hubs of KERNELS_HUB and "
            "whom a hub calls a trusted publisher"
        )


def _show(verb: str, entries: Trusted, *, as_json: bool) -> None:
    if as_json:
        owners = [{"owner": e.owner, "hub": e.hub} for e in sorted(entries.owners)]
        digests = [{"digest": digest} for digest in sorted(entries.digests)]
        click.echo(json.dumps([*owners, *digests], indent=2))
        return
    names = [f"{entry.owner} on {entry.hub}" for entry in sorted(entries.owners)]
    names += [f"the variant {digest}" for digest in sorted(entries.digests)]
    for name in names:
        click.echo(f"{verb} {name}".lstrip())


def _is_digest(text: str, hub: str | None) -> bool:
    return hub is None and SHA256.fullmatch(text) is not None


def _entries(owner: str, hub: str | None) -> frozenset[TrustedOwner]:
    from kernels.hub_address import parse_hubs
    from kernels.settings import hubs_of, read_settings
    from kernels.trust import TrustedOwner

    if _OWNER.fullmatch(owner) is None:
        raise click.UsageError(f"{owner!r} is not an owner; expected the part of an id before '/'.")
    hubs = parse_hubs(hub, "--hub") if hub else hubs_of(read_settings(), owner)
    found = frozenset(TrustedOwner(owner, e.url) for e in hubs if not e.url.startswith("file://"))
    if not found:
        raise click.UsageError(
            "a directory hub that KERNELS_HUB names is trusted already; give another one with --hub."
        )
    return found
