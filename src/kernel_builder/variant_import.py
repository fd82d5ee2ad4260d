"""The ways to import a variant, and what is wrong with it then; shared by the programs that try them.

A program of its own process runs this file by its path; it imports nothing of ours but the loader that it is
told of. In place of the kernels that a variant needs stand modules of which whatever is asked is a class that
can be called, subclassed and asked for more: what the kernel does with the others while it is imported is not
proved by that, only that the kernel itself can be imported.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
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


def import_by_id(directory: Path, op_id: str) -> ModuleType:
    """Import a variant under its id, so that ``from . import <id>`` finds the library."""
    spec = importlib.util.spec_from_file_location(
        op_id, directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{directory} is no Python package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[op_id] = module
    spec.loader.exec_module(module)
    return module


def import_by_loader(directory: Path, root: str, needed: Iterable[str]) -> ModuleType:
    """Import a variant by ``kernels.importer``, which is found in ``root``.

    Args:
        directory: the directory of the variant.
        root: where the package of the loader is.
        needed: the kernels that it needs, which something else stands in for.
    """
    sys.path.append(root)
    from kernels.importer import load
    from kernels.variant_dir import read_variant

    return load(read_variant(directory), make_stand_ins(needed))


def find_absent(module: ModuleType) -> str | None:
    """Say which names of ``__all__`` a module does not have, or None."""
    absent = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
    return f"__all__ names what the module does not have: {', '.join(absent)}" if absent else None


def find_lacking(error: BaseException | None, allowed: Iterable[str]) -> str | None:
    """Return the module that an import lacks, where the variant may ask for it."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            name = error.name.partition(".")[0]
            return name if name in allowed else None
        error = error.__cause__ or error.__context__
    return None
