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
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LACKING = 3


# This program runs by itself, and cannot import what lies beside it.
ways = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("variant_import.py"))))


def load_alone(request: dict[str, Any]) -> str | None:
    """Load the library without the Python of the kernel, and say what is wrong with it, or None."""
    import tvm_ffi

    for path in request["preload"]:
        ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    ctypes.CDLL(request["library"], mode=os.RTLD_NOW | os.RTLD_LOCAL)
    loaded = tvm_ffi.load_module(request["library"])
    lost = [name for name in request["functions"] if not loaded.implements_function(name)]
    return f"TVM FFI does not find what the library exports: {', '.join(lost)}" if lost else None


def look(request: dict[str, Any]) -> str | None:
    """Load and import a variant in all ways; say what is wrong with it, or None."""
    directory = Path(request["directory"])
    fault = load_alone(request)
    if fault is not None or request["skip_import"]:
        return fault
    # Under its id alone, nobody tells a kernel which others it needs.
    if not request["needed"]:
        fault = ways.find_absent(ways.import_by_id(directory, request["op_id"]))
    if fault is None and request["loader"] is not None:
        module = ways.import_by_loader(directory, request["loader"], request["needed"])
        fault = ways.find_absent(module)
    return fault


def main(place: Path) -> int:
    """Look at the variant of a request and return the exit code."""
    request = json.loads(place.read_text())
    sys.path.insert(0, request["tvm_ffi"])
    try:
        fault = look(request)
    except BaseException as err:  # noqa: BLE001  (the boundary of the process: a kernel's code ran)
        lacking = ways.find_lacking(err, request["allowed"])
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
