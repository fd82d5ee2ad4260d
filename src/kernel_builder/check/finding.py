"""A finding: one rule that a variant breaks, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One rule that a variant breaks.

    Attributes:
        file: the file, as a path in the variant.
        rule: the name of the rule, such as ``glibc-version``.
        message: what was found and what was expected.
        fix: what to do.
        symbol: the symbol, library or name at fault, as people read it.
    """

    file: str
    rule: str
    message: str
    fix: str
    symbol: str | None = None

    def __str__(self) -> str:
        name = f"{self.symbol}: " if self.symbol else ""
        return f"{self.file}: {self.rule}: {name}{self.message}; {self.fix}"
