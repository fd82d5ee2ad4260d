"""``kernels verify-signature``: what proves who made a kernel's variants, and what does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kernel_spec.command import say_error, say_note, show
from kernels.cli.asking import find_path, locate

if TYPE_CHECKING:
    from kernels.settings import Settings
    from kernels.signature import Testimony
    from kernels.source import Located


class _Result(NamedTuple):
    variant: str
    testimony: Testimony | None
    fault: str | None


@click.command(name="verify-signature")
@click.argument("kernel")
@click.argument("version", required=False)
@click.option("--revision", help="A branch, tag or commit instead of a version.")
@click.option("--all-variants", is_flag=True, help="For every system, not only for this one.")
@click.option("--filter-unsigned", is_flag=True, help="Leave out variants without a signature.")
@click.option("--filter-no-digest", is_flag=True, help="Leave out variants without a digest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(  # noqa: PLR0917 - click's signature
    ctx: click.Context,
    kernel: str,
    version: str | None,
    revision: str | None,
    all_variants: bool,
    filter_unsigned: bool,
    filter_no_digest: bool,
    as_json: bool,
) -> None:
    """Say what proves who made KERNEL, a repository's id or a path, at VERSION.

    Every file is compared with the digest in the variant's metadata, and the signature beside that with
    the metadata's bytes. Whose signature it is cannot be checked yet: this client knows no signers. So
    nothing counts as verified, and it exits with 1.
    """
    from kernels.settings import read_settings

    if (path := find_path(kernel, version, revision)) is not None:
        commit, results = None, list(_examine_path(path))
    else:
        settings = read_settings()
        located = locate(kernel, version, revision, settings)
        commit, results = located.commit, list(_examine_published(located, settings, all_variants))
    results = [
        result
        for result in results
        if not (filter_unsigned and result.testimony and result.testimony.signature == "none")
        and not (filter_no_digest and result.testimony and not result.testimony.has_digest)
    ]
    verified = bool(results) and all(r.testimony and r.testimony.is_verified for r in results)
    if as_json:
        variants = [_as_document(result) for result in results]
        document = {"kernel": kernel, "commit": commit, "verified": verified, "variants": variants}
        click.echo(json.dumps(document, indent=2))
    else:
        for result in results:
            click.echo(show(f"{result.variant}: {_describe(result)}"))
    if not results:
        say_error(f"no variant of {kernel} is left to verify")
    elif not as_json:
        say_note(
            "to load only bytes that you have seen, lock them: kernels lock (docs/guide/lock.md)"
        )
    ctx.exit(0 if verified else 1)


def _examine_published(
    located: Located, settings: Settings, all_variants: bool
) -> Iterator[_Result]:
    from kernel_spec.compat import choose
    from kernel_spec.errors import KernelError
    from kernels.install import install
    from kernels.signature import examine
    from kernels.source import offered
    from kernels.store import Store
    from kernels.system import detect

    variants = offered(located)
    if not all_variants:
        best = choose(detect(), list(variants))
        variants = {best.name: variants[best.name]} if best is not None else {}
    for name, wanted in variants.items():
        try:
            variant = install(Store(settings.cache), wanted, settings.state)
        except KernelError as err:
            yield _Result(name, None, str(err))
        else:
            yield _Result(name, examine(variant), None)


def _examine_path(path: Path) -> Iterator[_Result]:
    from kernel_spec.errors import KernelError
    from kernels.local import variants_at
    from kernels.signature import examine
    from kernels.variant_dir import read_variant

    for name, place in variants_at(path).items():
        try:
            yield _Result(name, examine(read_variant(place)), None)
        except KernelError as err:
            yield _Result(name, None, str(err))


def _describe(result: _Result) -> str:
    from kernels.signature import SignatureState

    testimony = result.testimony
    if testimony is None:
        return f"not verified: {result.fault}"
    match testimony.signature:
        case SignatureState.NONE:
            signed = "not signed"
        case SignatureState.BROKEN:
            signed = f"not verified: its signature is broken: {testimony.detail}"
        case SignatureState.OTHER_BYTES:
            signed = "not verified: its signature is for other bytes than its metadata"
        case SignatureState.UNCHECKED:
            signed = "not verified: it carries a signature of its metadata, whose is not known here"
    files = (
        "every file is as its metadata says"
        if testimony.has_digest
        else "its metadata promises nothing of its files"
    )
    built = testimony.provenance
    if built is None:
        return f"{signed}; {files}"
    source = f" from commit {built.kernel_commit[:12]}" if built.kernel_commit else ""
    dirty = ", with changes that were not committed" if built.kernel_dirty else ""
    return (
        f"{signed}; {files}, and (unproved) that kernel-builder {built.builder_version} built it"
        f"{source}{dirty}"
    )


def _as_document(result: _Result) -> dict[str, Any]:
    testimony = result.testimony
    if testimony is None:
        return {"variant": result.variant, "verified": False, "fault": result.fault}
    return {
        "variant": result.variant,
        "verified": testimony.is_verified,
        "fault": testimony.detail or None,
        "signature": testimony.signature.value,
        "digest": testimony.has_digest,
        "provenance": None if testimony.provenance is None else asdict(testimony.provenance),
    }
