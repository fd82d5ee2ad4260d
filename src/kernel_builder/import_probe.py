"""The program that imports a variant in a process of its own; it needs torch and nothing of ours.

    python -I -B import_probe.py DIRECTORY ID COMPILED DEPENDS KEYS PRELOAD [LOADER_ROOT]

The variant is imported twice, in two processes that share one import of torch: as the published
client does it, where the package's name is the id, and by ``kernels.importer``. The exit code is
LACKING where a module is missing that the variant may ask for (DEPENDS, joined by commas): then
nothing is known, and a line ``lacking: NAME`` names it.

KEYS are the dispatch keys that ops must have code for, joined by commas. PRELOAD are libraries that
a torch for the backend would bring, joined by colons: with them functions are bound at their first
call, so that a variant for a GPU can be imported, and run on the CPU, by a torch without one.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

LACKING = 3


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


def import_by_loader(directory: Path, root: str) -> ModuleType:
    """Import a variant by ``kernels.importer``, which is found in ``root``."""
    sys.path.append(root)
    from kernels.importer import load_directory

    return load_directory(directory)


def find_fault(module: ModuleType, op_id: str, *, compiled: bool, keys: list[str]) -> str | None:
    """Say what is wrong with an imported variant, or None."""
    import torch

    names = torch._C._dispatch_get_all_op_names()
    if compiled and not any(name.startswith(f"{op_id}::") for name in names):
        return (
            f"the import registers no op under torch.ops.{op_id}; register the ops with "
            "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ...) of registration.h"
        )
    own = [name for name in names if name.startswith(f"{op_id}::")]
    for key in keys if compiled else ():
        if not any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for name in own):
            return (
                f"the variant carries code for {key}, and none of its ops has any; register it "
                f"with STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, {key}, ...)"
            )
    absent = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
    if absent:
        return f"__all__ names what the module does not have: {', '.join(absent)}"
    return None


def main(arguments: list[str]) -> int:
    """Import a variant in both ways and return the exit code."""
    import torch  # noqa: F401  (once, for both processes)

    directory, op_id, compiled = Path(arguments[0]), arguments[1], arguments[2] == "1"
    depends, roots = arguments[3].split(","), arguments[6:]
    keys = [key for key in arguments[4].split(",") if key]
    _preload([path for path in arguments[5].split(os.pathsep) if path])
    child = os.fork() if roots else 0
    try:
        if child == 0:
            module = import_by_id(directory, op_id)
        else:
            module = import_by_loader(directory, roots[0])
        fault = find_fault(module, op_id, compiled=compiled, keys=keys)
        if fault is not None:
            sys.stderr.write(f"{fault}\n")
        code = int(fault is not None)
    except BaseException as err:  # noqa: BLE001  (the boundary of the process: a kernel's code ran)
        lacking = _find_lacking(err, depends)
        code = 1 if lacking is None else LACKING
        if lacking is None:
            traceback.print_exc()
        else:
            sys.stderr.write(f"lacking: {lacking}\n")
    if roots and child == 0:
        sys.stderr.flush()
        os._exit(code)
    if child:
        other = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if other < 0:
            sys.stderr.write(f"the import under the id was ended by signal {-other}\n")
        code = code if code == LACKING or other == 0 else 1
    return code


def _preload(libraries: list[str]) -> None:
    """Load what a torch for the backend would bring, and bind functions late from here on."""
    import torch

    if libraries and torch.version.cuda is None:
        sys.setdlopenflags(os.RTLD_LAZY)
        for path in libraries:
            ctypes.CDLL(path)


def _find_lacking(error: BaseException | None, depends: list[str]) -> str | None:
    """Return the module that an import lacks, where the variant may ask for it."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            name = error.name.partition(".")[0]
            return name if name in depends else None
        error = error.__cause__ or error.__context__
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
