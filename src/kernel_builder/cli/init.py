"""``kernel-builder init``: write a new project."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_spec.backend import BackendKind

if TYPE_CHECKING:
    from kernel_builder.scaffold import NewProject
    from kernel_builder.settings import Settings


class _BackendsCommand(click.Command):
    """Takes several values after one ``--backends``: ``--backends cpu cuda``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Give every value its own flag before click reads the line."""
        return super().parse_args(ctx, spread(args, "--backends"))


def spread(arguments: list[str], flag: str) -> list[str]:
    """Repeat a flag before each of the backends that follow it.

    The first value after the flag is taken whatever it is; each further one where it is, or is
    nearly, the name of a backend, so that a PATH may follow.
    """
    result: list[str] = []
    taken: int | None = None
    for argument in [*arguments, "--"]:
        if taken is not None and not argument.startswith("-"):
            if taken == 0 or _is_like_a_backend(argument):
                result += [flag, argument]
                taken += 1
                continue
        elif taken == 0:
            raise click.UsageError(f"{flag} needs at least one backend, such as cpu")
        if argument == flag:
            taken = 0
        else:
            taken = None
            result.append(argument)
    return result[:-1]


# What people call a backend that has another name here; none of them is a likely PATH.
_OTHER_NAMES = ("gpu", "nvidia", "amd", "hip", "intel", "sycl", "apple", "mps")


def _is_like_a_backend(text: str) -> bool:
    from kernel_builder.config.table import find_close

    known = ["all", *(kind.value for kind in BackendKind)]
    return text in known or text in _OTHER_NAMES or find_close(text, known) is not None


@click.command("init", cls=_BackendsCommand)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--name", required=True, metavar="OWNER/REPO", help="Where it will be published.")
@click.option(
    "--backends",
    multiple=True,
    metavar="NAME...",
    help="What to write sources for: cpu cuda rocm metal xpu; all: what is built here. "
    "[default: cpu; with --noarch: cpu cuda rocm]",
)
@click.option(
    "--framework",
    type=click.Choice(["torch", "torch-noarch", "tvm-ffi"]),
    help="How its functions reach Python: as ops of torch, by Triton alone, or through TVM FFI "
    "for tensors of any library. [default: torch]",
)
@click.option("--noarch", is_flag=True, help="The same as --framework torch-noarch.")
@click.option("--license", "licence", default="Apache-2.0", show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
def init(
    *,
    path: Path | None,
    name: str,
    backends: tuple[str, ...],
    framework: str | None,
    noarch: bool,
    licence: str,
    overwrite: bool,
) -> None:
    """Write a new kernel project to PATH (./REPO): it builds, and its tests pass, at once."""
    from kernel_builder.scaffold import plan_project, start_repository, write_project
    from kernel_builder.settings import read_settings

    if noarch and framework not in (None, "torch-noarch"):
        raise click.UsageError(f"--noarch is --framework torch-noarch, found {framework} beside it")
    settings = read_settings()
    project = plan_project(
        name=name,
        backends=backends,
        licence=licence,
        framework="torch-noarch" if noarch else framework or "torch",
    )
    target = path if path is not None else Path(project.name)
    files = write_project(project, target, overwrite=overwrite)
    for file in files:
        click.echo(str(target / file))
    click.echo(f"\n{start_repository(target, files, settings)}")
    for note in _lacking(project, settings):
        click.echo(note)
    click.echo(f"next: kernel-builder build {target} && python -m pytest {target}")


def _lacking(project: NewProject, settings: Settings) -> list[str]:
    """Say which backends of a new project cannot be built here, and what each needs."""
    from kernel_builder.environment import detect_host

    if project.noarch:
        return []
    host = detect_host(settings)
    notes = [
        f"{kind.value}: its files are written, but it is not built here: {host.missing[kind]}"
        for kind in project.backends
        if kind in host.missing
    ]
    if project.framework == "tvm-ffi":
        if find_spec("tvm_ffi") is None:
            notes.append(
                "its tests need TVM FFI, which is not installed here: pip install apache-tvm-ffi "
                "numpy (or run them in kernel-builder testshell)"
            )
    elif host.torch is None:
        notes.append("nothing is built here yet: needs torch (pip install torch)")
    return notes
