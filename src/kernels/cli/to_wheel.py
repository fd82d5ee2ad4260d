"""``kernels to-wheel``: one wheel for each build variant of a kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_spec.command import say_error, say_warning
from kernels.cli.asking import locate

if TYPE_CHECKING:
    from kernels.source import Located

_PUBLIC = re.compile(r"v\d+(\.\d+)*([ab]|rc)?\d*", re.ASCII)
_DOTTED = re.compile(r"\d+\.\d+", re.ASCII)


def _check_dotted(ctx: click.Context, param: click.Parameter, value: str) -> str:
    del ctx, param
    if _DOTTED.fullmatch(value) is None:
        raise click.BadParameter(f"expected two numbers such as 3.9, found {value!r}")
    return value


@click.command(name="to-wheel")
@click.argument("repo_id")
@click.argument("version", required=False)
@click.option("--revision", help="A branch, tag or commit instead of a version.")
@click.option("--python-version", default="3.9", show_default=True, callback=_check_dotted)
@click.option("--manylinux-version", default="2.28", show_default=True, callback=_check_dotted)
@click.option("--variant", "only", multiple=True, help="Only this variant; may be given again.")
@click.option(
    "--out", default=".", type=click.Path(file_okay=False, path_type=Path), help="Where they go."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(  # noqa: PLR0917 - click's signature
    ctx: click.Context,
    repo_id: str,
    version: str | None,
    revision: str | None,
    python_version: str,
    manylinux_version: str,
    only: tuple[str, ...],
    out: Path,
    as_json: bool,
) -> None:
    """Write the wheels of REPO_ID at VERSION: a tag 1.1.2, a range of tags, or a number N for vN.

    A kernel must have been built for the Python and the glibc that the options promise.
    """
    from kernel_spec.errors import KernelError, VariantNameError
    from kernel_spec.variant import parse_variant
    from kernels.install import install
    from kernels.settings import read_settings
    from kernels.source import offered
    from kernels.store import Store
    from kernels.wheel import WheelTags, write_wheel

    if (version is None) is (revision is None):
        raise click.UsageError("give a VERSION or a --revision")
    settings = read_settings()
    located = locate(repo_id, version, revision, settings, refresh=True)
    variants = offered(located)
    if unknown := sorted(set(only) - set(variants)):
        known = ", ".join(variants) or "none"
        raise click.UsageError(f"{repo_id} has no variant {', '.join(unknown)}; it has {known}.")
    tags = WheelTags(python_version, manylinux_version)
    results: list[dict[str, str | None]] = []
    for name in only or tuple(variants):
        try:
            parse_variant(name)
            variant = install(Store(settings.cache), variants[name], settings.state)
            public = _public_version(located)
            number = public or str(variant.metadata.version)
            commit = "" if public else located.commit
            path = write_wheel(variant, number, out, tags, commit=commit)
            results.append({"variant": name, "wheel": str(path), "error": None})
        except VariantNameError as err:
            say_warning(f"{name} is passed over: {err}")
        except KernelError as err:
            results.append({"variant": name, "wheel": None, "error": str(err)})
    for result in results:
        if result["error"]:
            say_error(f"{result['variant']}: {result['error']}")
        elif not as_json:
            click.echo(result["wheel"])
    if as_json:
        click.echo(json.dumps(results, indent=2))
    if not results or any(result["error"] for result in results):
        ctx.exit(1)


def _public_version(located: Located) -> str:
    """Return the version of the wheels: that of the tag, or the number of the branch; or none."""
    word, _, name = located.taken.partition(" ")
    if word not in {"tag", "branch"} or _PUBLIC.fullmatch(name) is None:
        return ""
    return name.removeprefix("v")
