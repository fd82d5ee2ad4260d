"""Importing a variant in a clean process, as its users will."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from kernel_builder import import_probe
from kernel_builder.errors import CommandError, ImportCheckError
from kernel_builder.process import run
from kernel_builder.settings import Settings

_SECONDS = 300


def check_import(directory: Path, op_id: str, *, compiled: bool, settings: Settings) -> None:
    """Import a variant in a new, isolated Python and look for its ops.

    Args:
        directory: the directory of the variant.
        op_id: the namespace of its ops.
        compiled: whether it carries a library, which must register ops.
        settings: the environment of programs.

    Raises:
        ImportCheckError: with all that the process said.
    """
    probe = [sys.executable, "-I", "-B", import_probe.__file__]
    command = [*probe, str(directory), op_id, str(int(compiled)), *_find_loader()]
    try:
        run(command, cwd=directory, variables=settings.variables, timeout=_SECONDS)
    except CommandError as err:
        code = err.finished.code
        died = f"the process ended with signal {-code}" if code < 0 else f"exit code {code}"
        said = err.finished.output.rstrip()
        raise ImportCheckError(
            f"{directory.name}: cannot be imported in a clean process ({died}):\n{said}"
        ) from err


def _find_loader() -> list[str]:
    """Return the directory that the package of the loader is in, as a list of one or none."""
    found = importlib.util.find_spec("kernels.importer")
    return [] if found is None or found.origin is None else [str(Path(found.origin).parents[1])]
