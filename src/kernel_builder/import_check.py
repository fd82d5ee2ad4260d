"""Importing a variant in a clean process, as its users will."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from kernel_builder import import_probe
from kernel_builder.errors import CommandError, ImportCheckError
from kernel_builder.process import run
from kernel_builder.settings import Settings

_SECONDS = 300
# Comes with torch where torch has a device for it.
_COMPANIONS = ("triton",)
_MODULES = {"nvidia-cutlass-dsl": "cutlass"}


def check_import(
    directory: Path,
    op_id: str,
    *,
    compiled: bool,
    depends: Iterable[str],
    keys: Iterable[str] = (),
    preload: Iterable[Path] = (),
    settings: Settings,
) -> str | None:
    """Import a variant in a new, isolated Python and look for its ops.

    Args:
        directory: the directory of the variant.
        op_id: the namespace of its ops.
        compiled: whether it carries a library, which must register ops.
        depends: the Python packages that it asks for, as ``metadata.json`` names them.
        keys: the dispatch keys, such as ``CUDA``, that ops must have code for.
        preload: libraries that torch would bring where it has the backend.
        settings: the environment of programs.

    Returns:
        None where it can be imported; else what is not installed here, so that nothing is known.

    Raises:
        ImportCheckError: with all that the process said.
    """
    probe = [sys.executable, "-I", "-B", import_probe.__file__]
    modules = [*_COMPANIONS, *(_MODULES.get(name, name.replace("-", "_")) for name in depends)]
    facts = [str(directory), op_id, str(int(compiled)), ",".join(modules)]
    facts += [",".join(keys), os.pathsep.join(str(path) for path in preload)]
    try:
        run(
            [*probe, *facts, *_find_loader()],
            cwd=directory,
            variables=settings.variables,
            timeout=_SECONDS,
        )
    except CommandError as err:
        lacking = re.search(r"^lacking: (\S+)$", err.finished.output, re.MULTILINE)
        if err.finished.code == import_probe.LACKING and lacking is not None:
            return f"not imported, since {lacking[1]} is not installed here"
        code = err.finished.code
        died = f"the process ended with signal {-code}" if code < 0 else f"exit code {code}"
        said = err.finished.output.rstrip()
        raise ImportCheckError(
            f"{directory.name}: cannot be imported in a clean process ({died}):\n{said}"
        ) from err
    return None


def _find_loader() -> list[str]:
    """Return the directory that the package of the loader is in, as a list of one or none."""
    found = importlib.util.find_spec("kernels.importer")
    return [] if found is None or found.origin is None else [str(Path(found.origin).parents[1])]
