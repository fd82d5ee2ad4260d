"""``kernels bundle``: kernels for other machines in one file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_spec.amounts import format_count, format_size
from kernel_spec.command import say_error

if TYPE_CHECKING:
    from kernels.bundle.archive import Bundle, Packed
    from kernels.bundle.pack import Asked

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_VERSION = re.compile(r"v?(\d+)", re.ASCII)
_RANGE = re.compile(r"[<>=!~]|\d+\.", re.ASCII)


@click.group(name="bundle")
def command() -> None:
    """Carry kernels to machines that reach no hub, in one file."""


@command.command(name="create")
@click.argument("kernels", nargs=-1)
@click.option(
    "--target",
    "targets",
    multiple=True,
    required=True,
    help="The other machine, such as torch2.13-cu130-x86_64-linux; may be given again.",
)
@click.option("--arch", "archs", multiple=True, help="Its GPU, such as 9.0; may be given again.")
@click.option("--lock", "lock", type=_FILE, help="Every kernel of a kernels.lock, as it says.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The bundle; it is replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def create(  # noqa: PLR0917 - click's signature
    kernels: tuple[str, ...],
    targets: tuple[str, ...],
    archs: tuple[str, ...],
    lock: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """Write the bundle of KERNELS, and of what they need, for every target.

    A kernel is owner/name, owner/name@1 (version 1), owner/name@1.1.2 (a tag or a range), or
    owner/name@REVISION. This machine needs neither the GPU nor the torch of a target; nothing of a kernel
    is run.
    """
    from kernels.bundle.archive import read_bundle
    from kernels.bundle.pack import asked_by_lock
    from kernels.bundle.pack import create as pack
    from kernels.bundle.target import parse_target
    from kernels.lockfile import read_lock
    from kernels.settings import read_settings

    if not kernels and lock is None:
        raise click.UsageError("name at least one kernel, or --lock")
    systems = [parse_target(target, archs) for target in targets]
    asked = [parse_asked(text) for text in kernels]
    if lock is not None:
        asked += asked_by_lock(read_lock(lock).lock.kernels)
    pack(output, asked, systems, read_settings())
    _show(read_bundle(output), as_json=as_json)


@command.command(name="list")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_(file: Path, as_json: bool) -> None:
    """Show what the bundle FILE holds; its files are not hashed."""
    from kernels.bundle.archive import read_bundle

    _show(read_bundle(file), as_json=as_json)


@command.command(name="verify")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def verify(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Hash every file of the bundle FILE; exits with 1 where one differs."""
    from kernels.bundle.archive import read_bundle, verify_files

    bundle = read_bundle(file)
    faults = dict(verify_files(bundle))
    if as_json:
        click.echo(json.dumps({"bundle": str(file), "faults": faults}, indent=2))
    for name, fault in faults.items():
        say_error(f"{name}: {fault}")
    if faults:
        ctx.exit(1)
    if not as_json:
        count = sum(len(listing.files) for listing in bundle.listings.values())
        click.echo(f"{file}: {count} files, every byte is right")


@command.command(name="install")
@click.argument("file", type=_FILE)
@click.option(
    "--hub",
    type=click.Path(file_okay=False, path_type=Path),
    help="Into this folder, a hub for KERNELS_HUB=file://, instead of the cache.",
)
@click.option("--trust", is_flag=True, help="Consent to run these very variants, for good.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def install(file: Path, hub: Path | None, trust: bool, as_json: bool) -> None:
    """Verify the bundle FILE and install it, so that get_kernel finds its kernels without a network."""
    from kernels.bundle.archive import read_bundle
    from kernels.bundle.unpack import install_into_cache, install_into_hub, require_whole
    from kernels.settings import read_settings

    if hub is not None and trust:
        raise click.UsageError(
            "--trust is for the cache: a folder that KERNELS_HUB names is trusted"
        )
    bundle = read_bundle(file)
    require_whole(bundle)
    if hub is not None:
        published: list[dict[str, str | list[str]]] = [
            {"repo_id": str(kernel.repo), "commit": commit, "variants": sorted(kernel.variants)}
            for kernel, commit in install_into_hub(bundle, hub.absolute())
        ]
        _tell(published, f"Use it with: KERNELS_HUB={hub.absolute().as_uri()}", as_json=as_json)
        return
    delivered = install_into_cache(bundle, read_settings(), trust=trust)
    rows: list[dict[str, str | list[str]]] = [
        {
            "repo_id": str(one.kernel.repo),
            "commit": one.kernel.commit,
            "hub": one.hub,
            "variants": [one.variant.path.name],
            "digest": one.variant.digest,
            "path": str(one.variant.path),
        }
        for one in delivered
    ]
    hint = "" if trust else "A publisher who is not trusted here needs your consent: --trust"
    _tell(rows, hint, as_json=as_json)


def parse_asked(text: str) -> Asked:
    """Read ``owner/name``, ``owner/name@1``, ``owner/name@1.1.2`` or ``owner/name@revision``."""
    from kernels.asked import parse_ref
    from kernels.bundle.pack import Asked

    repo_id, at, what = text.partition("@")
    if at and not what:
        raise click.UsageError(f"{text!r}: expected a version or a revision after @")
    version = _VERSION.fullmatch(what)
    if version is not None:
        return Asked(parse_ref(repo_id, None, int(version[1])))
    if _RANGE.match(what):
        return Asked(parse_ref(repo_id, None, what))
    return Asked(parse_ref(repo_id, what or None, None))


def _tell(rows: Sequence[Mapping[str, str | list[str]]], hint: str, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        names = ", ".join(row["variants"])
        click.echo(f"{row['repo_id']} (commit {str(row['commit'])[:12]}): {names}")
    if hint:
        click.echo(hint)


def _show(bundle: Bundle, *, as_json: bool) -> None:
    if as_json:
        rows = [_describe(kernel) for kernel in bundle.kernels]
        document = {"bundle": str(bundle.path), "bytes": bundle.size, "kernels": rows}
        click.echo(json.dumps(document, indent=2))
        return
    for kernel in bundle.kernels:
        names = ", ".join((*kernel.branches, *kernel.tags)) or "no branch or tag"
        click.echo(f"{kernel.repo} (commit {kernel.commit[:12]}; {names})")
        for name in sorted(kernel.variants):
            click.echo(f"  {name}")
    kernels = format_count(len(bundle.kernels), "kernel")
    click.echo(f"{bundle.path}: {format_size(bundle.size)} in {kernels}")


def _describe(kernel: Packed) -> dict[str, object]:
    return {
        "repo_id": str(kernel.repo),
        "hub": kernel.hub or None,
        "commit": kernel.commit,
        "branches": list(kernel.branches),
        "tags": list(kernel.tags),
        "variants": dict(sorted(kernel.variants.items())),
    }
