"""The program that loads a kernel of TVM FFI in a process of its own; it needs nothing of ours.

    python -I -B tvm_ffi_probe.py REQUEST

REQUEST is a file of JSON; :func:`kernel_builder.tvm_ffi_check.check_functions` writes it. The library is
loaded alone, with every symbol bound, and TVM FFI is asked for each function that it exports. Then the
variant is imported: as the published client does it, where the package's name is the id, and by
``kernels.importer``. TVM FFI is the pinned one, whatever is installed.

The exit code is LACKING where a module is missing that the variant may ask for: then nothing is
known of the import, and the module is named in the file ``lacking`` beside REQUEST.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

LACKING = 3


def import_by_id(directory: Path, op_id: str) -> ModuleType:
    """Import a variant under its id."""
    spec = importlib.util.spec_from_file_location(
        op_id, directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{directory} is no Python package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[op_id] = module
    spec.loader.exec_module(module)
    return module


def load_alone(request: dict[str, Any]) -> str | None:
    """Load the library without the Python of the kernel, and say what is wrong with it, or None."""
    import tvm_ffi

    for path in request["preload"]:
        ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    ctypes.CDLL(request["library"], mode=os.RTLD_NOW | os.RTLD_LOCAL)
    loaded = tvm_ffi.load_module(request["library"])
    lost = [name for name in request["functions"] if not loaded.implements_function(name)]
    return f"TVM FFI does not find what the library exports: {', '.join(lost)}" if lost else None


def find_absent(module: ModuleType) -> str | None:
    """Say which names of ``__all__`` a module does not have, or None."""
    absent = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
    return f"__all__ names what the module does not have: {', '.join(absent)}" if absent else None


def find_lacking(error: BaseException | None, allowed: list[str]) -> str | None:
    """Return the module that an import lacks, where the variant may ask for it."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            name = error.name.partition(".")[0]
            return name if name in allowed else None
        error = error.__cause__ or error.__context__
    return None


def look(request: dict[str, Any]) -> str | None:
    """Load and import a variant in all ways; say what is wrong with it, or None."""
    directory = Path(request["directory"])
    fault = load_alone(request)
    if fault is not None or request["skip_import"]:
        return fault
    # Under its id alone, nobody tells a kernel which others it needs.
    if not request["needed"]:
        fault = find_absent(import_by_id(directory, request["op_id"]))
    if fault is None and request["loader"] is not None:
        sys.path.append(request["loader"])
        from kernels.importer import load, read_variant

        # This program runs by itself, and cannot import what lies beside it.
        names = runpy.run_path(str(Path(__file__).with_name("needed_kernels.py")))
        stand_ins = names["make_stand_ins"](request["needed"])
        fault = find_absent(load(read_variant(directory), stand_ins))
    return fault


def main(place: Path) -> int:
    """Look at the variant of a request and return the exit code."""
    request = json.loads(place.read_text())
    sys.path.insert(0, request["tvm_ffi"])
    try:
        fault = look(request)
    except BaseException as err:  # noqa: BLE001  (the boundary of the process: a kernel's code ran)
        lacking = find_lacking(err, request["allowed"])
        if lacking is None:
            traceback.print_exc()
            return 1
        place.with_name("lacking").write_text(lacking)
        return LACKING
    if fault is not None:
        sys.stderr.write(f"{fault}\n")
    return 0 if fault is None else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
