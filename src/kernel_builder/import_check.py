"""Importing a variant in a clean process, as its users will."""

from __future__ import annotations

import sys
from pathlib import Path

from kernel_builder.errors import CommandError, ImportCheckError
from kernel_builder.process import run
from kernel_builder.settings import Settings

_SECONDS = 300

# The published client gives the package the name of the op namespace, so that `from . import <id>`
# finds the library and the ops lie where metadata.json says.
_PROGRAM = """
import importlib.util, sys
directory, name, compiled = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
import torch
spec = importlib.util.spec_from_file_location(
    name, directory + "/__init__.py", submodule_search_locations=[directory])
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
spec.loader.exec_module(module)
registered = [each for each in torch._C._dispatch_get_all_op_names()
              if each.startswith(name + "::")]
if compiled and not registered:
    sys.exit("the import registers no op under torch.ops." + name + "; register the ops with "
             "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ...) of registration.h")
foreign = [each for each in vars(module).get("__all__", ()) if not hasattr(module, each)]
if foreign:
    sys.exit("__all__ names what the module does not have: " + ", ".join(foreign))
"""


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
    command = [
        sys.executable,
        "-I",
        "-B",
        "-c",
        _PROGRAM,
        str(directory),
        op_id,
        str(int(compiled)),
    ]
    try:
        run(command, cwd=directory, variables=settings.variables, timeout=_SECONDS)
    except CommandError as err:
        said = err.finished.output.rstrip() or f"exit code {err.finished.code}"
        raise ImportCheckError(
            f"{directory.name}: cannot be imported in a clean process:\n{said}"
        ) from err
