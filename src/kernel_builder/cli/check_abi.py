"""``kernel-builder check-abi``: which Linux, Python and torch the libraries of variants need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernel_builder.cli.frame import place_of, project_argument

if TYPE_CHECKING:
    from kernel_builder.check.abi import Interfaces
    from kernel_spec.version import MajorMinor

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})", re.ASCII)


def _parse_version(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    if value is None:
        return None
    match = _VERSION.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r}: expected two numbers such as 3.9")
    return int(match[1]), int(match[2])


@click.command("check-abi")
@project_argument
@click.option(
    "-m",
    "--manylinux",
    default="manylinux_2_28",
    show_default=True,
    metavar="NAME",
    help="The policy of PEP 600 that says which C and C++ libraries there are.",
)
@click.option(
    "--macos",
    callback=_parse_version,
    metavar="X.Y",
    default="15.0",
    show_default=True,
    help="The oldest macOS that libraries for it must run on.",
)
@click.option(
    "-p",
    "--python-abi",
    callback=_parse_version,
    metavar="X.Y",
    default="3.9",
    show_default=True,
    help="The oldest Python whose stable ABI must do.",
)
@click.option(
    "--torch-stable-abi",
    callback=_parse_version,
    metavar="X.Y",
    help="The version of torch's stable ABI  [default: that of a variant's name].",
)
def check_abi(
    directory: Path,
    manylinux: str,
    macos: tuple[int, int],
    python_abi: tuple[int, int],
    torch_stable_abi: tuple[int, int] | None,
) -> None:
    """Check what the libraries of the variants of DIR ask for, stripped or not."""
    from kernel_builder.check.abi import Interfaces, list_libraries
    from kernel_builder.check.abi import check_abi as check_libraries
    from kernel_builder.check.variant import find_variants
    from kernel_builder.policy import list_policies
    from kernel_spec.version import MajorMinor

    if manylinux not in list_policies():
        known = ", ".join(list_policies())
        raise click.BadParameter(
            f"{manylinux!r}: expected one of {known}", param_hint="--manylinux"
        )
    place = place_of(directory)
    failed = False
    for found in find_variants(place):
        variant = found.resolve()
        torch = MajorMinor(*torch_stable_abi) if torch_stable_abi else _stable_abi_of(variant.name)
        interfaces = Interfaces(manylinux=manylinux, python=python_abi, torch=torch, macos=macos)
        findings = tuple(check_libraries(variant, interfaces))
        failed = failed or bool(findings)
        for finding in findings:
            click.echo(f"{variant.name}: {finding}")
        if not findings:
            click.echo(f"{variant.name}: {_describe_good(list_libraries(variant), interfaces)}")
    if failed:
        raise click.exceptions.Exit(1)


def _describe_good(libraries: tuple[Path, ...], interfaces: Interfaces) -> str:
    """Say what was proved of libraries that ask for no more than they may."""
    from kernel_builder.check.abi import is_for_one_torch
    from kernel_builder.check.macos import is_mac_library

    own = sum(map(is_for_one_torch, libraries)) if interfaces.torch is not None else 0
    mac = {is_mac_library(place.read_bytes()[:4]) for place in libraries}
    need = [interfaces.manylinux, f"Python {'.'.join(map(str, interfaces.python))}"]
    need += [f"torch's stable ABI {interfaces.torch}"] if interfaces.torch is not None else []
    if mac == {True}:
        need = [f"macOS {'.'.join(map(str, interfaces.macos))}"]
    elif mac == {True, False}:
        need.append(f"macOS {'.'.join(map(str, interfaces.macos))}")
    count = len(libraries)
    what = f"{count} librar{'y needs' if count == 1 else 'ies need'} no more than "
    more = f"; {own} of them, for one torch each, need that torch" if own else ""
    return what + ", ".join(need) + more if count else "ok, no libraries"


def _stable_abi_of(name: str) -> MajorMinor | None:
    """Return the version of torch's stable ABI in the name of a variant, or None."""
    from kernel_spec.errors import VariantNameError
    from kernel_spec.framework import TorchStableAbi
    from kernel_spec.variant import ArchVariant, parse_variant

    try:
        variant = parse_variant(name)
    except VariantNameError:
        return None
    if isinstance(variant, ArchVariant) and isinstance(variant.framework, TorchStableAbi):
        return variant.framework.version
    return None
