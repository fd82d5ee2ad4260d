"""Importing a variant in a clean process, as its users will."""

from __future__ import annotations

import importlib.util
import json
import site
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from kernel_builder import import_probe, variant_import
from kernel_builder.check.registered import Registered, RegisteredOp
from kernel_builder.check.signatures import Schema
from kernel_builder.errors import CommandError, ImportCheckError
from kernel_builder.planned import VariantBuild
from kernel_builder.sandbox import OPEN, Sandbox, View, run_confined
from kernel_builder.settings import Settings

_SECONDS = 300
# Comes with torch where torch has a device for it.
_COMPANIONS = ("triton",)
_MODULES = {"nvidia-cutlass-dsl": "cutlass"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportAnswer:
    """What a clean process said of a variant.

    Attributes:
        library: what torch has after the library alone was loaded; None where there is no library.
        imported: what torch has after the import; None where nothing is known of that.
        lacking: what is not installed here, so that the import proves nothing; else None.
        boxed: for each function that the library gave an op through torch's stable interface, the
            dispatch key, the op and where in the library it begins.
        kinds: for each op of the library, what it takes and returns.
    """

    library: Registered | None
    imported: Registered | None
    lacking: str | None
    boxed: tuple[tuple[str, str, int], ...] = ()
    kinds: Mapping[str, Schema] = field(default_factory=dict)


def check_import(
    directory: Path,
    build: VariantBuild,
    *,
    schemas: Iterable[str] = (),
    preload: Sequence[Path] = (),
    recorder: Path | None = None,
    per_torch: Path | None = None,
    settings: Settings,
    sandbox: Sandbox = OPEN,
) -> ImportAnswer:
    """Load a variant's library, and import the variant, in new, isolated Pythons.

    Args:
        directory: the directory of the variant.
        build: the variant; its library, where it has one, must register ops.
        schemas: texts of schemas, which torch is to write in its own form.
        preload: libraries that torch would bring where it has the backend.
        recorder: the library that writes down which functions ops are given, or None.
        per_torch: the per-torch library of the installed torch, which must load too, or None.
        settings: the environment of programs.
        sandbox: what keeps the kernel's code from the network and the user's files.

    Raises:
        ImportCheckError: with all that the process said.
    """
    depends = build.python_depends
    modules = [*_COMPANIONS, *(_MODULES.get(name, name.replace("-", "_")) for name in depends)]
    modules += [Requirement(text).name.replace("-", "_") for text in build.python_requires]
    with tempfile.TemporaryDirectory(prefix="import-") as scratch:
        answer = Path(scratch) / "answer.json"
        request = {
            "directory": str(directory),
            "op_id": build.op_id,
            "library": str(directory / build.library) if build.units else None,
            "depends": modules,
            "needed": [each.repo_id for each in build.kernel_depends],
            "skip_import": build.skip_import_check is not None,
            "schemas": list(schemas),
            "preload": [str(path) for path in preload],
            "recorder": None if recorder is None else str(recorder),
            "per_torch": None if per_torch is None else str(per_torch),
            "loader": find_loader(),
            "answer": str(answer),
        }
        seen = [directory, *preload, *([] if recorder is None else [recorder])]
        run_probe(
            import_probe.__file__,
            request,
            seen=seen,
            scratch=Path(scratch),
            lacking=import_probe.LACKING,
            settings=settings,
            sandbox=sandbox,
        )
        document = json.loads(answer.read_text())
    return ImportAnswer(
        library=_read_registered(document["library"]),
        imported=_read_registered(document["imported"]),
        lacking=document["lacking"],
        boxed=tuple((each["key"], each["name"], each["offset"]) for each in document["boxed"]),
        kinds={
            name: Schema(arguments=tuple(each["arguments"]), returns=tuple(each["returns"]))
            for name, each in (document["library"] or {"kinds": {}})["kinds"].items()
        },
    )


def describe_needed(build: VariantBuild) -> tuple[str, ...]:
    """Say which kernels something else stood in for while a variant was imported."""
    names = ", ".join(each.repo_id for each in build.kernel_depends)
    said = f"imported with stand-ins for {names}: that they have what it uses is not proved"
    return (said,) if names else ()


def run_probe(
    program: str,
    request: Mapping[str, Any],
    *,
    seen: Iterable[Path],
    scratch: Path,
    lacking: int,
    settings: Settings,
    sandbox: Sandbox,
    what: str = "imported",
) -> bool:
    """Run one of our programs that load a variant, in a new, isolated Python.

    Args:
        program: its file.
        request: what it is told; ``directory`` is that of the variant.
        seen: what of the disk it sees, besides itself and this Python.
        scratch: a directory that it may write to.
        lacking: the exit code by which it says that a module is missing which the variant may ask for.
        settings: the environment of programs.
        sandbox: what keeps the kernel's code from the network and the user's files.
        what: what it does with the variant.

    Returns:
        Whether no module is missing.

    Raises:
        ImportCheckError: with all that the process said.
    """
    directory, asked = Path(request["directory"]), scratch / "request.json"
    asked.write_text(json.dumps(request))
    programs = (Path(program), Path(variant_import.__file__))
    try:
        run_confined(
            [sys.executable, "-I", "-B", program, asked],
            sandbox=sandbox,
            view=View(readable=(*seen, *programs, *python_places()), writable=(scratch,), gpu=True),
            cwd=directory,
            variables=settings.variables,
            timeout=_SECONDS,
        )
    except CommandError as err:
        code = err.finished.code
        if code == lacking:
            return False
        died = f"the process ended with signal {-code}" if code < 0 else f"exit code {code}"
        if err.finished.late:
            died = f"not done after {_SECONDS} s"
        raise ImportCheckError(
            f"{directory.name}: cannot be {what} in a clean process ({died}):\n"
            f"{err.finished.output.rstrip()}"
        ) from err
    return True


def _read_registered(found: dict[str, Any] | None) -> Registered | None:
    if found is None:
        return None
    ops = {
        name: RegisteredOp(schema=op["schema"], keys=frozenset(op["keys"]))
        for name, op in found["ops"].items()
    }
    return Registered(ops=ops, dangling=frozenset(found["dangling"]), parsed=found["parsed"])


def python_places() -> list[Path]:
    """Return the directories of this Python, its packages and the loader.

    Not all of ``sys.path``: PYTHONPATH and the place of a script count for nothing in an isolated
    Python, and may be somebody's home.
    """
    packages = [Path(place) for place in site.getsitepackages()]
    places = [Path(sys.prefix), Path(sys.base_prefix), *packages]
    for listed in (file for place in packages for file in sorted(place.glob("*.pth"))):
        lines = listed.read_text(encoding="utf-8", errors="replace").splitlines()
        places += [listed.parent / line for line in lines if line and not line.startswith("import")]
    places += [Path(found) for found in [find_loader()] if found is not None]
    return [place for place in dict.fromkeys(places) if place.is_dir()]


def find_loader() -> str | None:
    """Return the directory that the package of the loader is in, or None."""
    found = importlib.util.find_spec("kernels.importer")
    return None if found is None or found.origin is None else str(Path(found.origin).parents[1])
