"""``kernels verify``: hashes every byte of a kernel on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from kernel_spec.command import say_error
from kernels.cli.asking import find_path, locate


class _Result(NamedTuple):
    name: str
    path: str | None
    faults: tuple[str, ...]


@click.command(name="verify")
@click.argument("kernel", default=".")
@click.option("--version", help="A version, or a range of tags; default: the highest version.")
@click.option("--revision", help="A branch, tag or commit instead of a version.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(
    ctx: click.Context, kernel: str, version: str | None, revision: str | None, as_json: bool
) -> None:
    """Hash every file of KERNEL, whatever receipts say, and compare.

    KERNEL is a repository's id: each of its variants in the cache is compared with what the hub
    lists; a project with a kernels.lock: each variant in the cache with the lock; or any other path of
    a kernel: each variant with its own metadata. Exits with 1 where one differs or none is here.
    """
    if (path := find_path(kernel, version, revision)) is not None:
        locked = (path / "kernels.lock").is_file()
        results = list(_verify_lock(path) if locked else _verify_path(path))
    else:
        results = list(_verify_repository(kernel, version, revision))
    bad = [result for result in results if result.faults]
    if as_json:
        click.echo(json.dumps([result._asdict() for result in results], indent=2))
    else:
        for result in results:
            click.echo(f"{result.name}: {'; '.join(result.faults) or 'every byte is right'}")
    if not results:
        say_error(
            f"no variant of {kernel} is on this machine: there is nothing to hash before it is loaded "
            "(get_kernel), installed (install_kernel) or, in a project with a lock, brought by: "
            "kernels download"
        )
    if bad or not results:
        ctx.exit(1)


def _verify_path(path: Path) -> Iterator[_Result]:
    from kernel_spec.errors import KernelError
    from kernels.local import variants_at
    from kernels.variant_dir import read_variant

    for name, place in variants_at(path).items():
        try:
            variant = read_variant(place)
        except KernelError as err:
            yield _Result(name, str(place), (str(err),))
            continue
        promised = variant.metadata.digest is not None
        yield _Result(
            name, str(place), () if promised else ("its metadata promises nothing: no digest",)
        )


def _verify_lock(project: Path) -> Iterator[_Result]:
    from kernels.lockfile import describe_entry, read_lock
    from kernels.settings import read_settings
    from kernels.store import Store

    folder = Store(read_settings().cache).folder("variants")
    for entry in read_lock(project / "kernels.lock").lock.kernels:
        here = [name for name, digest in entry.variants.items() if (folder / digest).is_dir()]
        for name in here:
            yield _verify_installed(f"{entry.repo_id} {name}", folder / entry.variants[name])
        if not entry.variants:
            yield _Result(describe_entry(entry), None, ("this form of lock names no bytes",))
        elif not here:
            yield _Result(describe_entry(entry), None, ("no variant of it is in the cache",))


def _verify_repository(
    repo_id: str, version: str | None, revision: str | None
) -> Iterator[_Result]:
    from kernels.settings import read_settings
    from kernels.store import Store, find_digest
    from kernels.trees import variants_of

    settings = read_settings()
    store = Store(settings.cache)
    located = locate(repo_id, version, revision, settings)
    for name, files in variants_of(located.files).items():
        digest = find_digest(store, files)
        place = store.folder("variants") / (digest or "-")
        if place.is_dir():
            yield _verify_installed(f"{repo_id} {name}", place)


def _verify_installed(name: str, place: Path) -> _Result:
    from kernels.verify import verify_bytes

    damage = verify_bytes(place)
    return _Result(name, str(place), damage.faults if damage is not None else ())
