"""Rewriting a ``build.toml`` of an older edition as one of the current edition, in place."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernel_builder.config.check import suggest_name
from kernel_builder.config.lines import KeyPath, Place, index_lines
from kernel_builder.config.meaning import STRICTER
from kernel_builder.config.model import (
    CURRENT_EDITION,
    FILE_NAME,
    Build,
    Depends,
    TorchNoarch,
)
from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError, ConfigFault, ProjectError
from kernel_builder.known import read_known
from kernel_spec.backend import BackendKind
from kernel_spec.names import module_name

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_BOM = "\ufeff"
# What the half of an old `cuda-hipify` table for one GPU has no use for.
_CUDA_KEYS = ("cuda-capabilities", "cuda-flags", "cuda-minver")
_ROCM_KEYS = ("rocm-archs", "hip-flags")


def migrate(data: bytes, *, file: str = FILE_NAME, licence: str | None = None) -> str:
    """Rewrite a file as one of the current edition: comments, order and version texts stay.

    A file of the current edition comes back as it is. What comes back means what the file meant:
    it is read again and compared.

    Args:
        data: the bytes of the file.
        file: how messages name it.
        licence: the licence to state where the file, being old, states none.

    A name with ``_`` for ``-`` is set right, since the Python module stays what it was.

    Raises:
        ConfigError: with every fault of the file; a licence that it does not state, and that was
            not given, is one of them.
        ProjectError: its inline tables or dotted keys cannot be rewritten in place.
    """
    data = _rename(data)
    try:
        old = parse_build(data, file)
    except ConfigError as err:
        raise ConfigError(file, _with_licence(data, err.faults, licence)) from err
    text = data.decode()
    if old.edition == CURRENT_EDITION:
        return text
    # What older editions were allowed, and this one is not, has its line in the old file.
    stricter = tuple(each for each in old.doubts if each.kind in STRICTER)
    faults = _with_licence(data, stricter, licence)
    if faults:
        raise ConfigError(file, faults)
    text = _like(text, _edit_tables(_edit_lines(_plain(text), old), old, licence))
    try:
        new = parse_build(text.encode(), file)
    except ConfigError as err:
        raise _cannot(file) from err
    if _meaning(new) != _meaning(old, licence=licence):
        raise _cannot(file)
    return text


def _rename(data: bytes) -> bytes:
    """Write the name of a kernel with ``-`` where it has ``_``; other names stay as they are.

    What is left for the author to change are names whose module would change with them.
    """
    general = _read_general(data)
    name = general.get("name")
    if not isinstance(name, str) or "_" not in name:
        return data
    meant = suggest_name(name)
    if meant is None or module_name(meant) != name:
        return data
    text = data.decode()
    lines = text.splitlines(keepends=True)
    at = index_lines(text)["general", "name"].line - 1
    pattern = rf"""(name["']?\s*=\s*)(["']){re.escape(name)}\2"""
    lines[at] = re.sub(pattern, rf"\g<1>\g<2>{meant}\g<2>", lines[at], count=1)
    return "".join(lines).encode()


def _read_general(data: bytes) -> dict[str, Any]:
    """Return ``[general]`` as it stands there; empty where nothing can be read."""
    try:
        general = tomllib.loads(data.decode("utf-8-sig")).get("general")
    except (ValueError, RecursionError):
        return {}
    return general if isinstance(general, dict) else {}


def _with_licence(
    data: bytes, faults: tuple[ConfigFault, ...], licence: str | None
) -> tuple[ConfigFault, ...]:
    """Add to the faults of a file that it states no licence, which an older edition may leave out."""
    general = _read_general(data)
    if licence or not general or "license" in general:
        return faults
    if any(fault.path == "general.license" for fault in faults):
        return faults
    added = (*faults, _no_licence(data.decode("utf-8-sig")))
    return tuple(sorted(added, key=lambda fault: (fault.line, fault.path)))


def _plain(text: str) -> str:
    """Return a text without a byte order mark, its lines ending as Unix ends them."""
    return text.removeprefix(_BOM).replace("\r\n", "\n")


def _like(before: str, after: str) -> str:
    """Set new headers apart by empty lines; begin the text, and end its lines, as it was before."""
    known = {line.strip() for line in _plain(before).splitlines()}
    # A header that was renamed in its place is no new one.
    known |= {re.sub(r"^(\[\s*)torch(\s*\])", r"\1torch-noarch\2", line) for line in known}
    lines: list[str] = []
    apart = False
    for line in after.splitlines():
        if line.lstrip().startswith("["):
            new = line.strip() not in known
            if (new or apart) and lines and lines[-1].strip():
                lines.append("")
            apart = new
        lines.append(line)
    end = "\r\n" if before.count("\n") == before.count("\r\n") > 0 else "\n"
    return (_BOM if before.startswith(_BOM) else "") + end.join([*lines, ""])


def _no_licence(text: str) -> ConfigFault:
    place = index_lines(_plain(text)).get(("general",))
    message = f"is missing; edition {CURRENT_EDITION} needs it; name it with --license"
    return ConfigFault(
        line=1 if place is None else place.line,
        path="general.license",
        kind="missing-key",
        message=message,
        suggestion="--license Apache-2.0",
    )


def _cannot(file: str) -> ProjectError:
    return ProjectError(
        f"{file}: its inline tables or dotted keys cannot be rewritten in place; write them as "
        "tables with headers, such as [kernel.<name>], and try again"
    )


def _meaning(build: Build, *, licence: str | None = None) -> Build:
    """Return a build without what a migration changes on purpose: edition, places, order."""
    general = build.general
    python = set(general.depends.python)
    python.update(name for each in general.backend_depends.values() for name in each.python)
    kernels = {kind: each.kernels for kind, each in general.backend_depends.items() if each.kernels}
    general = replace(
        general,
        license=general.license or licence,
        depends=replace(general.depends, python=tuple(sorted(python))),
        backend_depends={kind: Depends(kernels=each) for kind, each in kernels.items()},
    )
    components = tuple(sorted(build.components, key=lambda component: component.name))
    return replace(
        build,
        edition=CURRENT_EDITION,
        general=general,
        components=components,
        warnings=(),
        doubts=(),
    )


def _edit_lines(text: str, old: Build) -> str:
    """Rename what keeps its place: ``language``, and the header of a ``universal`` project."""
    if old.edition > 2:
        return text
    import tomlkit

    lines = text.splitlines(keepends=True)
    places = index_lines(text)
    kernel = tomlkit.parse(text).unwrap().get("kernel", {})
    # From the last line to the first: what is inserted moves only what was edited already.
    tables = sorted(kernel, key=lambda name: -places["kernel", name].line)
    for name in tables:
        _name_backend(lines, places, ("kernel", name), kernel[name])
    if isinstance(old.framework, TorchNoarch):
        place = places["torch",].line - 1
        lines[place] = re.sub(r"^(\s*\[\s*)torch(\s*\])", r"\1torch-noarch\2", lines[place])
    return "".join(lines)


def _name_backend(
    lines: list[str], places: dict[KeyPath, Place], path: KeyPath, table: dict[str, Any]
) -> None:
    """Write the backend of a component in the place of its language, else below its header."""
    if "language" in table:
        backend = "metal" if table["language"] == "metal" else "cuda"
        at = places[*path, "language"].line - 1
        pattern = r"""language(["']?\s*=\s*)("[^"]*"|'[^']*')"""
        lines[at] = re.sub(pattern, rf'backend\1"{backend}"', lines[at], count=1)
    elif "backend" not in table:
        at = places[path].line - 1
        header = lines[at]
        if header.lstrip().startswith("["):
            end = header[len(header.rstrip("\r\n")) :] or "\n"
            lines[at] = f'{header.rstrip()}{end}backend = "cuda"{end}'


def _edit_tables(text: str, old: Build, licence: str | None) -> str:
    """Make the changes that have no place of their own in the old file."""
    import tomlkit

    document = tomlkit.parse(text)
    general = document["general"]
    assert isinstance(general, dict)
    if old.edition <= 2:
        _edit_universal(document, old)
        _edit_cuda_bounds(general)
        _edit_python_depends(general)
        general["backends"] = [kind.value for kind in old.general.backends]
        _split_hipified(document, old)
    if "version" not in general:
        general["version"] = old.general.version
    if "license" not in general:
        general["license"] = licence
    general["edition"] = CURRENT_EDITION
    if old.edition == 3 and isinstance(old.framework, TorchNoarch):
        document["torch-noarch"] = tomlkit.table()
    return _gather(text, tomlkit.dumps(document))


def _gather(before: str, after: str) -> str:
    """Move new keys of ``[general]`` up to its other values.

    tomlkit writes them below the comments that end a table, and those are about the table that comes next.
    """
    old, new = index_lines(before), index_lines(after)
    lines = after.splitlines(keepends=True)
    if not lines[new["general",].line - 1].lstrip().startswith("["):
        return after
    direct = [path for path in new if len(path) == 2 and path[0] == "general"]
    # The last line of each value; tables have no text.
    ends = {path: new[path].line + text.count("\n") for path in direct if (text := new[path].text)}
    end = max((ends[path] for path in ends if path in old), default=len(lines))
    moved = sorted(at - 1 for path, at in ends.items() if path not in old and at > end)
    rest = []
    for at, line in enumerate(lines):
        # tomlkit sets a table below a new key apart; a comment stays with what it is about.
        parted = at - 1 in moved and not line.strip() and lines[moved[0] - 1].startswith("#")
        if at >= end and at not in moved and not parted:
            rest.append(line)
    return "".join([*lines[:end], *(lines[at] for at in moved), *rest])


def _edit_universal(document: TOMLDocument, old: Build) -> None:
    import tomlkit

    for name in ("general", "torch", "torch-noarch"):
        table = document.get(name)
        if table is not None and "universal" in table:
            del table["universal"]
    if not isinstance(old.framework, TorchNoarch):
        return
    if "torch" in document:
        # Not under a header of its own, so it was not renamed above.
        del document["torch"]
        document["torch-noarch"] = tomlkit.table()
    table = document["torch-noarch"]
    assert isinstance(table, dict)
    for key in [key for key in table if key != "pyext"]:
        del table[key]
    if old.framework.pyext and "pyext" not in table:
        table["pyext"] = list(old.framework.pyext)


def _edit_cuda_bounds(general: Any) -> None:
    """Move ``cuda-minver`` and ``cuda-maxver`` to ``[general.cuda]``."""
    for old, new in (("cuda-minver", "minver"), ("cuda-maxver", "maxver")):
        if old in general:
            value = general[old]
            del general[old]
            _table_of(general, BackendKind.CUDA)[new] = value


def _edit_python_depends(general: Any) -> None:
    """Move each Python dependency that belongs to one backend to that backend's table."""
    known = read_known().python_depends
    names = list(general.get("python-depends", ()))
    for kind, own in known.items():
        moved = [name for name in names if kind is not None and name in own]
        if kind is None or not moved:
            continue
        for name in moved:
            general["python-depends"].remove(name)
        _table_of(general, kind)["python-depends"] = moved
    if names and not general["python-depends"]:
        del general["python-depends"]


def _table_of(general: Any, kind: BackendKind) -> Any:
    """Return the table of a backend under ``[general]``, made where it is not there."""
    import tomlkit

    if kind.value not in general:
        inline = isinstance(general, tomlkit.items.InlineTable)
        general[kind.value] = tomlkit.inline_table() if inline else tomlkit.table()
    return general[kind.value]


def _split_hipified(document: TOMLDocument, old: Build) -> None:
    """Write the ROCm half of each ``cuda-hipify`` table as a table of its own."""
    import tomlkit

    kernel: Any = document.get("kernel", {})
    for component in old.components:
        if component.backend is not BackendKind.ROCM or component.name in kernel:
            continue
        source = kernel[component.name.removesuffix("_rocm")]
        inline = isinstance(kernel, tomlkit.items.InlineTable)
        half: Any = tomlkit.inline_table() if inline else tomlkit.table()
        half["backend"] = BackendKind.ROCM.value
        for key, value in source.items():
            if key not in ("backend", *_CUDA_KEYS):
                half[key] = value.unwrap() if hasattr(value, "unwrap") else value
        for key in _ROCM_KEYS:
            if key in source:
                del source[key]
        kernel[component.name] = half
