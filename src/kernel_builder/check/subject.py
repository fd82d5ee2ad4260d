"""The variant that is checked, and the facts that the rules are about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_spec.binary import ElfFacts, Symbol
from kernel_spec.framework import TvmFfi
from kernel_spec.metadata import Metadata
from kernel_spec.variant import ArchVariant, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A variant that is checked.

    Attributes:
        directory: where it lies.
        variant: what its name says.
        metadata: what it says of itself.
    """

    directory: Path
    variant: Variant
    metadata: Metadata


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedLibrary:
    """A library of a variant.

    Attributes:
        file: its path in the variant.
        facts: what the dynamic loader sees of it.
    """

    file: str
    facts: ElfFacts

    @property
    def undefined(self) -> tuple[Symbol, ...]:
        """The symbols that others must define."""
        return tuple(symbol for symbol in self.facts.symbols if not symbol.defined)


def is_of_tvm_ffi(subject: Subject) -> bool:
    """Say whether a variant reaches Python through TVM FFI, and not through torch."""
    return isinstance(subject.variant, ArchVariant) and isinstance(
        subject.variant.framework, TvmFfi
    )
