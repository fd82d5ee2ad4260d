"""The options of every command that plans: which backends, variants, toolkits and capabilities."""

from __future__ import annotations

import functools
import platform
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernel_builder.settings import Settings
from kernel_spec.backend import BackendKind
from kernel_spec.errors import UsageError, VariantNameError
from kernel_spec.framework import Torch
from kernel_spec.variant import ArchVariant, parse_variant
from kernel_spec.version import MajorMinor, parse_major_minor

if TYPE_CHECKING:
    from kernel_builder.planned import Selection

_Command = TypeVar("_Command", bound=Callable[..., Any])
_NATIVE = "native"
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What the command line says of what to build, as it was written.

    Attributes:
        backends: only these backends.
        variants: only the variants of these names; where no toolkit or processor is stated, they choose.
        cuda_home: the directory of the user's own CUDA toolkit.
        cuda_versions: pinned CUDA toolkits.
        torch_versions: releases of torch, for variants of the full interface.
        archs: the capabilities that are wanted, or ``native``.
        every: whether every pinned toolkit is wanted.
        cpu: the processor that is built for; None: that of this machine.
    """

    backends: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    cuda_home: Path | None = None
    cuda_versions: tuple[str, ...] = ()
    torch_versions: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    every: bool = False
    cpu: str | None = None


_NAMES = tuple(each.name for each in fields(Choice))


def choice_options(command: _Command) -> _Command:
    """Add an option for each attribute of :class:`Choice`; the command gets it as ``choice``."""

    @functools.wraps(command)
    def with_choice(**given: Any) -> Any:
        choice = Choice(**{name: given.pop(name) for name in _NAMES})
        return command(choice=choice, **given)

    options = (
        click.option(
            "--backend", "backends", multiple=True, metavar="NAME", help="Only this backend."
        ),
        click.option(
            "--variant", "variants", multiple=True, metavar="NAME", help="Only this variant."
        ),
        click.option(
            "--cuda",
            "cuda_versions",
            multiple=True,
            metavar="VERSION",
            help="A pinned CUDA toolkit, fetched on first use; as often as wanted [default: 13.0].",
        ),
        click.option(
            "--cuda-home",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="PATH",
            help="An installed CUDA toolkit in place of a pinned one.",
        ),
        click.option(
            "--torch",
            "torch_versions",
            multiple=True,
            metavar="VERSION",
            help="A release of torch, which need not be installed, for its full interface; as often as "
            "wanted [default: the installed one].",
        ),
        click.option(
            "--arch",
            "archs",
            multiple=True,
            metavar="CAPABILITY",
            help="Only this CUDA capability (9.0, 9.0a, 8.0+PTX), or native: that of the GPUs here.",
        ),
        click.option(
            "--cpu",
            type=click.Choice(["x86_64", "aarch64"]),
            help="The processor to build for; another one than this needs a cross compiler.",
        ),
        click.option("--all", "every", is_flag=True, help="With every pinned CUDA toolkit."),
    )
    made: Any = with_choice
    for option in reversed(options):
        made = option(made)
    return made  # type: ignore[no-any-return]


def apply_choice(settings: Settings, choice: Choice) -> tuple[Settings, Selection]:
    """Put the choice into the settings, as far as it says what to build with, and else into a selection.

    Raises:
        UsageError: options that exclude each other, a version or a capability that is none.
        SelectionError: no such backend.
        ToolchainError: ``--arch native``, and there is no driver or no GPU.
    """
    from kernel_builder.planned import Selection

    selection = Selection(
        backends=read_backends(choice.backends),
        variants=frozenset(choice.variants),
        archs=read_archs(choice.archs),
    )
    return _choose_toolkits(settings, choice), selection


def read_backends(texts: Iterable[str]) -> frozenset[BackendKind]:
    """Read what ``--backend`` names.

    Raises:
        SelectionError: no such backend.
    """
    from kernel_builder.config.check import check_backend
    from kernel_builder.errors import SelectionError

    names = tuple(texts)
    for text in names:
        objection = check_backend(text)
        if objection is not None:
            meant = objection.suggestion
            hint = f'; did you mean "{meant}"?' if meant else ""
            raise SelectionError(f"--backend: {objection.message}{hint}")
    return frozenset(map(BackendKind, names))


def _choose_toolkits(settings: Settings, choice: Choice) -> Settings:
    stated = [
        name
        for name, given in (
            ("--cuda", choice.cuda_versions),
            ("--cuda-home", choice.cuda_home),
            ("--all", choice.every),
        )
        if given
    ]
    if len(stated) > 1:
        raise UsageError(f"{' and '.join(stated)} exclude each other; give one of them")
    versions = _read_versions("--cuda", choice.cuda_versions, such_as="13.0")
    named = _read_variants(choice.variants)
    cpus = {each.cpu for each in named}
    cpu = choice.cpu or (next(iter(cpus)) if len(cpus) == 1 else None)
    if choice.every:
        from kernel_builder.toolchain.cuda import list_pinned

        versions = list_pinned(cpu or platform.machine())
    elif not stated:
        of_variants = (each.backend for each in named if each.kind is BackendKind.CUDA)
        versions = tuple(dict.fromkeys(each.version for each in of_variants if each.version))
    home = None if choice.cuda_home is None else choice.cuda_home.absolute()
    torches = _read_versions("--torch", choice.torch_versions, such_as="2.11")
    if not torches and any(isinstance(each.framework, Torch) for each in named):
        from kernel_builder.environment import choose_torches

        releases = (each.framework.version for each in named if isinstance(each.framework, Torch))
        torches = choose_torches(releases, cpu or platform.machine())
    return replace(
        settings, cuda_home=home, cuda_versions=versions, torch_versions=torches, cpu=cpu
    )


def _read_variants(names: Iterable[str]) -> tuple[ArchVariant, ...]:
    """Read the names that are some; the plan tells of those that are none."""
    found = []
    for name in names:
        with suppress(VariantNameError):
            variant = parse_variant(name)
            if isinstance(variant, ArchVariant):
                found.append(variant)
    return tuple(found)


def read_archs(archs: Iterable[str]) -> tuple[str, ...]:
    """Read ``--arch``; ``native`` is what the GPUs of this machine are.

    Raises:
        UsageError: one that names nothing: a variable that is not set is no wish for all of them.
        ToolchainError: ``native``, and there is no driver or no GPU.
    """
    found: list[str] = []
    for text in archs:
        for word in _split("--arch", text, such_as="9.0, or native"):
            if word == _NATIVE:
                from kernel_builder.toolchain.driver import read_device_archs

                found += read_device_archs()
            else:
                found.append(word)
    return tuple(dict.fromkeys(found))


def _read_versions(option: str, texts: Iterable[str], *, such_as: str) -> tuple[MajorMinor, ...]:
    """Read ``--cuda`` and ``--torch``; the third number of a version says nothing, as in names of variants.

    Raises:
        UsageError: one that is no version, or names none.
    """
    found = []
    for word in (word for text in texts for word in _split(option, text, such_as=such_as)):
        if _VERSION.fullmatch(word) is None:
            raise UsageError(f"{option}: expected a version such as {such_as}, found {word!r}")
        found.append(parse_major_minor(word))
    return tuple(dict.fromkeys(found))


def _split(option: str, text: str, *, such_as: str) -> list[str]:
    """Split what one option names, which may be several with commas, semicolons or blanks between."""
    words = text.replace(";", " ").replace(",", " ").split()
    if not words:
        raise UsageError(f"{option}: nothing is named; expected one such as {such_as}")
    return words
