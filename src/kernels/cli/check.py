"""``kernels check``: whether the variants of a published kernel keep the rules; the builder checks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from kernel_spec.command import say_warning
from kernels.cli.asking import find_path, locate

GROUP = "kernels.builder"
# Options of older commands whose values are the builder's policy now.
_OLD_OPTIONS = ("macos", "manylinux", "python_abi")


@click.command(name="check")
@click.argument("kernel")
@click.option("--version", help="A version, or a range of tags; default: the highest version.")
@click.option("--revision", help="A branch, tag or commit instead of a version.")
@click.option("--macos", hidden=True)
@click.option("--manylinux", hidden=True)
@click.option("--python-abi", hidden=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(ctx: click.Context, /, kernel: str, version: str | None, **options: Any) -> None:
    """Check every variant of KERNEL, a repository's id or a path: glibc, Python and torch ABI, layout.

    The same checks as `kernel-builder check`; nothing is executed. Exits with 1 where one fails.
    """
    given = [name for name in _OLD_OPTIONS if options[name] is not None]
    if given:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        say_warning(f"{flags}: the builder's own policy decides, this is ignored")
    check = find_check()
    from kernels.local import variants_at

    path = find_path(kernel, version, options["revision"])
    places = variants_at(path) if path else dict(_fetch(kernel, version, options["revision"]))
    results = {name: [str(finding) for finding in check(place)] for name, place in places.items()}
    if options["as_json"]:
        click.echo(json.dumps({"kernel": kernel, "variants": results}, indent=2))
    else:
        for name, findings in results.items():
            for finding in findings or ["ok"]:
                click.echo(f"{name}: {finding}")
    if any(results.values()) or not results:
        ctx.exit(1)


def find_check() -> Callable[[Path], Any]:
    """Return the builder's check of one variant directory.

    Raises:
        click.ClickException: the builder is not installed.
    """
    from importlib.metadata import entry_points

    try:
        [entry] = entry_points(group=GROUP, name="check")
        check: Callable[[Path], Any] = entry.load()
    except (ValueError, ImportError):
        raise click.ClickException(
            "The builder checks kernels, and it is not installed: pip install 'kernels[builder]'"
        ) from None
    return check


def _fetch(repo_id: str, version: str | None, revision: str | None) -> Iterator[tuple[str, Path]]:
    from kernels.install import install
    from kernels.settings import read_settings
    from kernels.source import offered
    from kernels.store import Store

    settings = read_settings()
    located = locate(repo_id, version, revision, settings)
    for name, wanted in offered(located).items():
        yield name, install(Store(settings.cache), wanted, settings.state).path
