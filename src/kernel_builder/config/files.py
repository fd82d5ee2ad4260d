"""Whether the files that a ``build.toml`` lists are there, and inside the project."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kernel_builder.config.check import check_name, check_path
from kernel_builder.config.edition import FRAMEWORKS
from kernel_builder.config.lines import KeyPath
from kernel_builder.config.model import TORCH_EXTENSION, TVM_FFI_EXTENSION
from kernel_builder.config.table import Faults
from kernel_spec.names import module_name


def check_files(project: Path, raw: Mapping[str, Any], faults: Faults) -> None:
    """Note each listed file or directory that is not there or lies outside, and a missing module."""
    root = project.resolve()
    seen = set()
    for path, text in _listed(raw):
        # What stands twice in a list is one fault already.
        if check_path(text) is not None or (*path[:-1], text) in seen:
            continue
        seen.add((*path[:-1], text))
        place = project / text
        if (refusal := _refusal(place)) is not None:
            faults.add(path, "missing-file", f'"{text[:80]}" cannot be looked at: {refusal}')
        elif not place.resolve().is_relative_to(root):
            message = f'"{text}" is a link out of the project; copy the file into it'
            faults.add(path, "bad-path", message)
        elif path[-2] == "include":
            if not place.is_dir():
                message = f'no directory "{text}" in the project'
                faults.add(path, "missing-file", message, _find_near(project, text))
        elif place.is_dir():
            message = f'"{text}" is a directory; list each file in it'
            faults.add(path, "missing-file", message)
        elif place.exists() and not place.is_file():
            message = f'"{text}" is no file but a pipe, socket or device; put the source there'
            faults.add(path, "missing-file", message)
        elif not place.is_file():
            message = f'no file "{text}" in the project'
            faults.add(path, "missing-file", message, _find_near(project, text))
    _check_module(project, raw, faults)


def _refusal(place: Path) -> str | None:
    """Say why the operating system looks at no such path: a part is too long, links go in a circle."""
    try:
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as err:
        return err.strerror or str(err)
    return None


def _check_module(project: Path, raw: Mapping[str, Any], faults: Faults) -> None:
    general = raw.get("general")
    name = general.get("name") if isinstance(general, dict) else None
    if not isinstance(name, str) or check_name(name) is not None:
        return
    framework = next((key for key in raw if key in FRAMEWORKS), None)
    extension = TVM_FFI_EXTENSION if framework == "tvm-ffi" else TORCH_EXTENSION
    module = f"{extension}/{module_name(name)}/__init__.py"
    if (refusal := _refusal(project / module)) is not None:
        message = f'"{module[:80]}" cannot be looked at: {refusal}'
        faults.add(("general", "name"), "missing-file", message)
    elif not (project / module).is_file():
        message = f'no file "{module}"; it is the Python module of this kernel'
        faults.add(("general", "name"), "missing-file", message, _find_near(project, module))


def _listed(raw: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the key path and text of each file and directory that a file lists."""
    tables: list[tuple[KeyPath, object]] = [((key,), raw.get(key)) for key in ("torch", "tvm-ffi")]
    kernel = raw.get("kernel")
    if isinstance(kernel, dict):
        tables += [(("kernel", name), table) for name, table in kernel.items()]
    for path, table in tables:
        if not isinstance(table, dict):
            continue
        for key in ("src", "include"):
            values = table.get(key)
            for index, text in enumerate(values if isinstance(values, list) else ()):
                if isinstance(text, str):
                    yield (*path, key, index), text


def _find_near(project: Path, text: str) -> str | None:
    """Return the existing path that a missing one probably means: first beside it, then anywhere.

    Build results and hidden directories are not looked at.
    """
    beside = (project / text).parent
    if beside.is_dir():
        names = [entry.name for entry in beside.iterdir()]
        close = get_close_matches(Path(text).name, sorted(names), n=1, cutoff=0.7)
        if close:
            return f'"{(Path(text).parent / close[0]).as_posix()}"'
    paths = []
    for directory, names, files in os.walk(project):
        names[:] = [name for name in names if not name.startswith(".") and name != "build"]
        relative = Path(directory).relative_to(project)
        paths += [(relative / file).as_posix() for file in files]
        if len(paths) > 2000:
            break
    same = sorted(path for path in paths if Path(path).name == Path(text).name)
    close = same or get_close_matches(text, sorted(paths), n=1, cutoff=0.8)
    return f'"{close[0]}"' if close else None
