"""The program that imports a variant in a process of its own; it needs torch and nothing of ours.

    python -I -B import_probe.py REQUEST

REQUEST is a file of JSON; :func:`kernel_builder.import_check.check_import` writes it. Three processes share
one import of torch. In one the library alone is loaded, to see what it registers. In the others the
variant is imported: as the published client does it, where the package's name is the id, and by
``kernels.importer``. What torch has then is written to the file that the request names.

The exit code is LACKING where a module is missing that the variant may ask for: then nothing is
known of the import, and the answer names the module.

With libraries to preload, which a torch for the backend would bring, functions are bound at their
first call, so that a variant for a GPU can be imported, and run on the CPU, by a torch without one.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

LACKING = 3


# This program runs by itself, and cannot import what lies beside it.
ways = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("variant_import.py"))))


def read_registered(op_id: str, schemas: list[str]) -> dict[str, Any]:
    """Read what torch has in a namespace, and write schemas as torch does."""
    import torch

    prefix = f"{op_id}::"
    ops, dangling = {}, []
    for name in torch._C._dispatch_get_all_op_names():
        if not name.startswith(prefix):
            continue
        dump, bare = torch._C._dispatch_dump(name), name.removeprefix(prefix)
        schema = re.search(rf"^schema: {re.escape(prefix)}(.*)$", dump, re.MULTILINE)
        keys = re.findall(r"^(?!debug)(\w+)(?:\[alias\])?: registered at", dump, re.MULTILINE)
        if schema is None:
            dangling.append(bare)
        else:
            ops[bare] = {"schema": schema[1], "keys": keys}
    parsed = {text: _parse_schema(prefix, text) for text in schemas}
    kinds = {bare: _read_kinds(prefix + bare) for bare in ops}
    return {"ops": ops, "dangling": dangling, "parsed": parsed, "kinds": kinds}


def _read_kinds(name: str) -> dict[str, list[str]]:
    """Return what an op takes and returns; ``real_type`` tells a dtype from a number."""
    import torch

    schema = torch._C._get_schema(*name.partition(".")[::2])
    return {
        "arguments": [str(each.real_type) for each in schema.arguments],
        "returns": [str(each.real_type) for each in schema.returns],
    }


def _parse_schema(prefix: str, text: str) -> str | None:
    import torch

    try:
        return str(torch._C.parse_schema(_with_namespace(prefix, text))).removeprefix(prefix)
    except RuntimeError:
        return None


def _with_namespace(prefix: str, text: str) -> str:
    return text if text.strip().startswith(prefix) else prefix + text.strip()


def explain_schemas(op_id: str, schemas: list[str]) -> str:
    """Say of each schema that torch cannot read what is wrong; torch's stable interface does not."""
    import torch

    said = []
    for text in schemas:
        try:
            torch._C.parse_schema(_with_namespace(f"{op_id}::", text))
        except RuntimeError as err:
            reason = str(err).split("\nException raised from", 1)[0].rstrip()
            said.append(f'torch cannot read the schema "{text}":\n{reason}\n')
    return "".join(said)


def find_fault(module: ModuleType, op_id: str, *, compiled: bool) -> str | None:
    """Say what is wrong with an imported variant, or None."""
    import torch

    names = torch._C._dispatch_get_all_op_names()
    if compiled and not any(name.startswith(f"{op_id}::") for name in names):
        return (
            f"the import registers no op under torch.ops.{op_id}; register the ops with "
            "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ...) of registration.h"
        )
    absent: str | None = ways.find_absent(module)
    return absent


def load_per_torch(library: Path) -> None:
    """Load the per-torch library of this torch, and fail where it defines an op of any namespace."""
    import torch

    # Should the library end this process, these are its last words.
    sys.stderr.write(f"loading {library.name}\n")
    sys.stderr.flush()
    before = set(torch._C._dispatch_get_all_op_names())
    ctypes.CDLL(str(library))
    if new := sorted(set(torch._C._dispatch_get_all_op_names()) - before):
        raise _FaultError(
            f"{library.name} registers {', '.join(new)}; a per-torch library gives code to ops of the "
            "main one, and has none of its own"
        )


def main(request: dict[str, Any]) -> int:
    """Look at a variant in all ways and return the exit code."""
    import torch  # noqa: F401  (once, for all processes)

    directory, op_id = Path(request["directory"]), request["op_id"]
    compiled = request["library"] is not None
    place = Path(request["answer"])
    answer: dict[str, Any] = {"library": None, "imported": None, "lacking": None, "boxed": []}
    _preload(request["preload"])

    def load_alone() -> dict[str, Any]:
        record = None if request["recorder"] is None else _open_recorder(request["recorder"])
        ctypes.CDLL(request["library"], mode=sys.getdlopenflags())
        boxed = [] if record is None else _read_boxed(record, op_id)
        found = read_registered(op_id, request["schemas"])
        if request["per_torch"] is not None:
            load_per_torch(Path(request["per_torch"]))
        return {"library": found, "boxed": boxed}

    def import_with(load: Callable[[], ModuleType]) -> Callable[[], dict[str, Any]]:
        def look() -> dict[str, Any]:
            try:
                module = load()
            except BaseException as err:
                lacking = ways.find_lacking(err, request["depends"])
                if lacking is None:
                    raise _say_missing(err, directory) from err
                return {"lacking": lacking}
            fault = find_fault(module, op_id, compiled=compiled)
            if fault is not None:
                raise _FaultError(fault)
            return {"imported": read_registered(op_id, []) if compiled else None}

        return look

    looks = [load_alone] if compiled else []
    needed, loader = request["needed"], request["loader"]
    # Under its id alone, nobody tells a kernel which others it needs.
    if not request["skip_import"] and not needed:
        looks.append(import_with(lambda: ways.import_by_id(directory, op_id)))
    if loader is not None and not request["skip_import"]:
        looks.append(import_with(lambda: ways.import_by_loader(directory, loader, needed)))
    code = 0
    for look in looks:
        part = place.with_suffix(".part")
        child = _in_child(look, part)
        if child == 0:
            answer |= json.loads(part.read_text())
        elif code == 0:
            # The later ways would say the same in other words.
            code = child
            sys.stderr.write(explain_schemas(op_id, request["schemas"]))
            break
    place.write_text(json.dumps(answer))
    return LACKING if code == 0 and answer["lacking"] is not None else code


# The recorder's pointers, and the functions of torch's that they are for.
_RECORDED = {
    "recorder_real_init": "aoti_torch_library_init_impl",
    "recorder_real_impl": "aoti_torch_library_impl",
    "recorder_real_versioned_impl": "torch_library_impl",
}


def _open_recorder(place: str) -> ctypes.CDLL:
    """Put the recorder before torch's functions, for what is loaded from here on."""
    import torch

    recorder = ctypes.CDLL(place, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    own = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    for pointer, name in _RECORDED.items():
        function = getattr(own, name, None)
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p)
            ctypes.c_void_p.in_dll(recorder, pointer).value = address.value
    recorder.recorder_text.restype = ctypes.c_char_p
    return recorder


def _read_boxed(recorder: ctypes.CDLL, op_id: str) -> list[dict[str, Any]]:
    """Return where in the library the function of each op begins, for each dispatch key."""
    lines = recorder.recorder_text().decode(errors="replace").splitlines()
    found = [line.split("\t") for line in lines]
    return [
        {"key": key, "name": name.removeprefix(f"{op_id}::"), "offset": int(offset, 16)}
        for space, key, name, offset in found
        if space == op_id
    ]


def _say_missing(error: BaseException, directory: Path) -> BaseException:
    """Return an error that says which package is not here and not asked for; else the same one."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None or error.path is not None:
        return error
    places = [
        f"{Path(frame.filename).relative_to(directory)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(directory)
    ]
    if not places or error.name.startswith(directory.name):
        return error
    return _FaultError(
        f"{places[-1]} imports {error.name}, which is not installed here, and build.toml does not "
        "list it under python-depends; list it, or import it where it is used"
    )


class _FaultError(Exception):
    """An import that went well, of a variant that is wrong."""


def _in_child(look: Callable[[], dict[str, Any]], place: Path) -> int:
    """Run a look in a child of this process, which has torch already; return its exit code."""
    place.unlink(missing_ok=True)
    child = os.fork()
    if child != 0:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code < 0:
            sys.stderr.write(f"the import was ended by signal {-code}\n")
        elif code == 0 and not place.is_file():
            sys.stderr.write("the kernel's code ended the process, with exit code 0\n")
            return 1
        # What the kernel's code exits with says nothing of ours.
        return 0 if code == 0 else 1
    code = 1
    try:
        place.write_text(json.dumps(look()))
        code = 0
    except _FaultError as err:
        sys.stderr.write(f"{err}\n")
    except BaseException:  # noqa: BLE001  (the boundary of the process: a kernel's code ran)
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _preload(libraries: list[str]) -> None:
    """Load what a torch for the backend would bring, and bind functions late from here on."""
    import torch

    if libraries and torch.version.cuda is None:
        sys.setdlopenflags(os.RTLD_LAZY)
        for path in libraries:
            ctypes.CDLL(path, mode=os.RTLD_LAZY | os.RTLD_GLOBAL)


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[1]).read_text())))
