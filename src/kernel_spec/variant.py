"""Build variants: the names of the directories under ``build/``."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_spec.backend import Backend, BackendKind
from kernel_spec.framework import Framework

OPERATING_SYSTEMS = ("linux", "darwin", "windows")


@dataclass(frozen=True, slots=True)
class ArchVariant:
    """A variant with machine code: framework, backend, CPU and operating system."""

    framework: Framework
    backend: Backend
    cpu: str
    os: str

    def __str__(self) -> str:
        return format_variant(self)


@dataclass(frozen=True, slots=True)
class NoarchVariant:
    """A variant without machine code, for one backend or (None) for every backend."""

    backend: BackendKind | None

    def __str__(self) -> str:
        return format_variant(self)


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
    raise NotImplementedError


def format_variant(variant: Variant) -> str:
    """Write the name of a build variant; ``parse_variant`` reads it back to an equal value.

    Raises:
        VariantNameError: the variant has no unambiguous name.
    """
    raise NotImplementedError
