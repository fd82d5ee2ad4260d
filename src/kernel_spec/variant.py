"""Build variants: the names of the directories under ``build/``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from kernel_spec.backend import (
    NOARCH_NAMES,
    Backend,
    BackendKind,
    format_backend,
    parse_backend,
)
from kernel_spec.errors import VariantNameError
from kernel_spec.framework import Framework, format_framework, parse_framework

OPERATING_SYSTEMS = ("linux", "darwin", "windows")

UNIVERSAL = "universal"
_CPU = re.compile(r"[a-z0-9_]+", re.ASCII)
_BACKEND_NAME = re.compile(r"[a-z]+", re.ASCII)
_NAME_OF = {kind: name for name, kind in NOARCH_NAMES.items()}


@dataclass(frozen=True, slots=True)
class ArchVariant:
    """A variant with machine code: framework, backend, CPU and operating system."""

    framework: Framework
    backend: Backend
    cpu: str
    os: str

    def __str__(self) -> str:
        return format_variant(self)

    @property
    def kind(self) -> BackendKind:
        """The backend that it is for, of whatever version."""
        return self.backend.kind

    @property
    def variant_str(self) -> str:
        """The name, as the published client calls it."""
        return format_variant(self)


@dataclass(frozen=True, slots=True)
class NoarchVariant:
    """A variant without machine code, for one backend or (None) for every backend."""

    backend: BackendKind | None

    def __str__(self) -> str:
        return format_variant(self)

    @property
    def kind(self) -> BackendKind | None:
        """The backend that it is for; None: every one."""
        return self.backend

    @property
    def variant_str(self) -> str:
        """The name, as the published client calls it."""
        return format_variant(self)


class UnknownVariant(NamedTuple):
    """A directory under ``build/`` whose name is of no form that this version knows."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def variant_str(self) -> str:
        """The name, as the published client calls it."""
        return self.name


Variant = ArchVariant | NoarchVariant


def parse_variant(name: str) -> Variant:
    """Read the name of a build variant.

    Forms: ``<framework>-<backend>-<cpu>-<os>`` such as
    ``torch-stable-abi211-cu130-x86_64-linux``, and ``torch-<backend>`` or
    ``torch-universal`` for variants without machine code.

    Raises:
        VariantNameError: with one of the kinds ``ambiguous-backend-version``,
            ``bad-backend``, ``bad-form``, ``bad-framework``, ``unknown-backend``,
            ``unknown-os``.
    """
    tokens = name.split("-")
    if len(tokens) == 1:
        raise VariantNameError(f"{name!r} is not the name of a build variant", kind="bad-form")
    if len(tokens) == 2 and tokens[0] == "torch":
        return NoarchVariant(_parse_noarch_backend(name, tokens[1]))
    size = _framework_size(tokens)
    framework = parse_framework("-".join(tokens[:size]))
    rest = tokens[size:]
    if len(rest) != 3 or _CPU.fullmatch(rest[1]) is None:
        raise VariantNameError(
            f"expected <framework>-<backend>-<cpu>-<os>, found {name!r}", kind="bad-form"
        )
    backend = parse_backend(rest[0])
    if rest[2] not in OPERATING_SYSTEMS:
        raise VariantNameError(
            f"unknown operating system {rest[2]!r} in {name!r}; known are "
            f"{', '.join(OPERATING_SYSTEMS)}",
            kind="unknown-os",
        )
    return ArchVariant(framework, backend, rest[1], rest[2])


def _framework_size(tokens: list[str]) -> int:
    """Count the tokens that belong to the framework."""
    if tokens[:2] == ["torch", "stable"]:
        return 3
    if tokens[0] == "tvm" or tokens[1] in ("cxx11", "cxx98"):
        return 2
    return 1


def _parse_noarch_backend(name: str, token: str) -> BackendKind | None:
    if token == UNIVERSAL:
        return None
    if _BACKEND_NAME.fullmatch(token) is None:
        raise VariantNameError(
            f"expected the name of a backend after torch-, found {name!r}", kind="bad-backend"
        )
    kind = NOARCH_NAMES.get(token)
    if kind is None:
        raise VariantNameError(
            f"unknown backend {token!r} in {name!r}; known are "
            f"{', '.join(sorted(NOARCH_NAMES))} and {UNIVERSAL}",
            kind="unknown-backend",
        )
    return kind


def format_variant(variant: Variant) -> str:
    """Write the name of a build variant; ``parse_variant`` reads it back to an equal value.

    Raises:
        VariantNameError: the variant has no unambiguous name.
    """
    if isinstance(variant, NoarchVariant):
        return f"torch-{UNIVERSAL if variant.backend is None else _NAME_OF[variant.backend]}"
    if _CPU.fullmatch(variant.cpu) is None or variant.os not in OPERATING_SYSTEMS:
        raise VariantNameError(
            f"no variant name for cpu {variant.cpu!r} and operating system {variant.os!r}",
            kind="bad-form",
        )
    framework = format_framework(variant.framework)
    return f"{framework}-{format_backend(variant.backend)}-{variant.cpu}-{variant.os}"
