"""``kernel-builder hash``: writes into ``metadata.json`` the hash of every file of a variant."""

from __future__ import annotations

from pathlib import Path

import click

from kernel_builder.cli.frame import place_of, project_argument


@click.command("hash")
@project_argument
def hash_variants(directory: Path) -> None:
    """Write the digest of each variant of DIR into its metadata.json.

    For variants that another builder made, or whose files were changed on purpose. An older proof of the
    gate, which was of other files, is taken away.
    """
    from kernel_builder.check.variant import find_variants
    from kernel_builder.described import write_digest

    place = place_of(directory)
    for found in find_variants(place):
        variant = found.resolve()
        changed = write_digest(variant)
        click.echo(f"{variant.name}: {'digest written' if changed else 'the digest was right'}")
