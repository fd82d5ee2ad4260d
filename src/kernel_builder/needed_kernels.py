"""Modules in place of the kernels that a variant needs, so that it can be imported without them.

A program of its own process runs this file by its path; it imports nothing of ours. Whatever is asked of
such a module is a class that can be called, subclassed and asked for more: what the kernel does with the
others while it is imported is not proved by that, only that the kernel itself can be imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any


class _Anything(type):
    """The kind of a class that has every attribute."""

    def __getattr__(cls, name: str) -> Any:
        return _make(name)


def _make(name: str) -> type:
    if name.startswith("__") and name.endswith("__"):
        # What Python itself asks for is there or is not.
        raise AttributeError(name)
    names = {"__init__": _ignore, "__getattr__": lambda _, inner: _make(inner)}
    return _Anything(name, (), names)


def _ignore(self: object, *arguments: object, **words: object) -> None:
    """Take any arguments."""


class _StandIn(ModuleType):
    """A module that has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return _make(name)


def make_stand_ins(names: Iterable[str]) -> dict[str, ModuleType]:
    """Return a module for each kernel, by the id of its repository."""
    return {name: _StandIn(name.replace("/", ".")) for name in names}
