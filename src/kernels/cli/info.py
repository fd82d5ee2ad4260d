"""``kernels info``: what a kernel says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernel_spec.command import show
from kernels.cli.asking import find_path, locate

if TYPE_CHECKING:
    from kernel_spec.metadata import Metadata


@click.command(name="info")
@click.argument("kernel")
@click.option("--version", help="A version, or a range of tags; default: the highest version.")
@click.option("--revision", help="A branch, tag or commit instead of a version.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(kernel: str, version: str | None, revision: str | None, as_json: bool) -> None:
    """Show what KERNEL, a repository's id or a path, says of itself."""
    if (path := find_path(kernel, version, revision)) is not None:
        metadata, backends = _read_path(path)
        where = {"path": kernel}
    else:
        commit, metadata, backends = _read_repository(kernel, version, revision)
        where = {"repo_id": kernel, "revision": commit}
    facts = {
        **where,
        "name": metadata.name,
        "version": metadata.version,
        "kernels_minver": ".".join(map(str, metadata.minver)) if metadata.minver else None,
        "license": metadata.license,
        "upstream": metadata.upstream,
        "source": metadata.source,
        "python_depends": list(metadata.python_depends),
        "backends": backends,
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for key, title in _TITLES.items():
        if key in facts:
            value = facts[key]
            text = ", ".join(value) if isinstance(value, list) else value
            click.echo(f"{title}: {'-' if text is None or text == '' else show(str(text))}")


_TITLES = {
    "repo_id": "Repository",
    "revision": "Revision",
    "path": "Path",
    "name": "Name",
    "version": "Version",
    "kernels_minver": "Minimum kernels version",
    "license": "License",
    "upstream": "Upstream",
    "source": "Source",
    "python_depends": "Python dependencies",
    "backends": "Backends",
}


def _read_path(path: Path) -> tuple[Metadata, list[str]]:
    from kernels.local import find_variants, verify_local
    from kernels.system import detect

    places = find_variants(path)
    if places is None:
        metadata = verify_local(path).metadata
        return metadata, [metadata.backend.value]
    name = _preferred(detect(), list(places))
    return verify_local(places[name]).metadata, _backends(places)


def _read_repository(
    repo_id: str, version: str | None, revision: str | None
) -> tuple[str, Metadata, list[str]]:
    from kernel_spec.metadata import parse_metadata
    from kernels.errors import NotAKernelError
    from kernels.fetch import fetch_metadata
    from kernels.settings import read_settings
    from kernels.source import offered
    from kernels.store import Store
    from kernels.system import detect
    from kernels.variant_dir import VariantDir
    from kernels.verify import find_installed

    settings = read_settings()
    located = locate(repo_id, version, revision, settings)
    variants = offered(located)
    if not variants:
        raise NotAKernelError(Path(repo_id), f"{located.ref} has no build variants.")
    name = _preferred(detect(), list(variants))
    wanted = variants[name]
    installed = find_installed(Store(settings.cache), wanted.files, settings.state)
    if isinstance(installed, VariantDir):
        return located.commit, installed.metadata, _backends(variants)
    data = fetch_metadata(wanted)
    if data is None:
        raise NotAKernelError(Path(repo_id), f"{wanted} has no metadata.json.")
    return located.commit, parse_metadata(data), _backends(variants)


def _preferred(system: Any, names: list[str]) -> str:
    """Return the variant that fits best, or else the first by name: never a random one."""
    from kernel_spec.compat import choose

    accepted = choose(system, names)
    return accepted.name if accepted is not None else sorted(names)[0]


def _backends(names: Any) -> list[str]:
    from kernel_spec.errors import VariantNameError
    from kernel_spec.variant import ArchVariant, parse_variant

    found = set()
    for name in names:
        try:
            variant = parse_variant(name)
        except VariantNameError:
            continue
        match variant:
            case ArchVariant(backend=backend):
                found.add(backend.kind.value)
            case _:
                found.add(variant.backend.value if variant.backend else "universal")
    return sorted(found)
