"""What a check of the gate says: a fault, or what it could not prove here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernel_builder.check.finding import Finding

GATE_FILE = "tests/gate.py"
# What a kernel raises may be pages long.
_SHOWN = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Unproved:
    """What a check could not prove, and why."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """An unusual input that the kernel refuses by ValueError."""

    message: str


Outcome = Finding | Unproved | Refused
Outcomes = Iterator[Outcome]


def fault(rule: str, name: str, message: str, fix: str) -> Finding:
    """Return a fault of a case or an op."""
    return Finding(file=GATE_FILE, rule=f"gate-{rule}", symbol=name, message=message, fix=fix)


def say_error(error: Exception) -> str:
    """Write what a kernel raised as one line, not too long."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
