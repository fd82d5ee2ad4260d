"""Reading ``build.toml``: every fault of every kind at once, or the value that it means."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_builder.config.component import read_components
from kernel_builder.config.edition import FRAMEWORKS, find_edition
from kernel_builder.config.files import check_files
from kernel_builder.config.framework import read_framework
from kernel_builder.config.general import UNIVERSAL, Listed, read_backends, read_general
from kernel_builder.config.headers import check_sources_used, read_header_sources
from kernel_builder.config.lines import index_lines
from kernel_builder.config.meaning import check_meaning
from kernel_builder.config.model import FILE_NAME, Build, TorchNoarch
from kernel_builder.config.table import Faults, Table
from kernel_builder.config.testing import read_testing
from kernel_builder.errors import ConfigError, ConfigFault, ProjectError


def find_project(place: Path) -> Path:
    """Return the directory of a project, given it or its ``build.toml``.

    Raises:
        ProjectError: there is no ``build.toml``.
    """
    project = place.parent if place.name == FILE_NAME and not place.is_dir() else place
    if (project / FILE_NAME).is_file():
        return project
    if not project.exists():
        raise ProjectError(f"{place}: no such directory; expected a kernel project")
    raise ProjectError(
        f"{project}: no {FILE_NAME} here; expected a kernel project. "
        "kernel-builder init writes a new one"
    )


def read_bytes(file: Path) -> bytes:
    """Return the bytes of a ``build.toml``.

    Raises:
        ProjectError: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as err:
        raise ProjectError(f"{file}: cannot be read ({err.strerror})") from err


def read_build(place: Path) -> Build:
    """Read the ``build.toml`` of a project (its directory, or the file itself).

    Raises:
        ConfigError: with every fault, those of missing files among them.
        ProjectError: there is no such file.
    """
    project = find_project(place)
    file = project / FILE_NAME
    build, faults, raw = _judge(read_bytes(file), str(file))
    check_files(project, raw, faults)
    return _finish(build, faults, str(file))


def parse_build(data: bytes, file: str = FILE_NAME) -> Build:
    """Read a ``build.toml`` without looking at the files that it lists.

    Args:
        data: the bytes of the file.
        file: how messages name it.

    Raises:
        ConfigError: with every fault.
    """
    build, faults, _ = _judge(data, file)
    return _finish(build, faults, file)


def _judge(data: bytes, file: str) -> tuple[Build | None, Faults, dict[str, Any]]:
    """Judge everything but the files: the value, where it has one, the faults, the raw data."""
    try:
        # Some editors begin a file with a byte order mark, which tomllib refuses.
        text = data.decode("utf-8-sig")
        raw = tomllib.loads(text)
        places = index_lines(text)
    except (ValueError, RecursionError) as err:
        raise ConfigError(file, (_syntax_fault(data, err),)) from err
    faults = Faults(places)
    root = Table(raw, (), faults)
    edition = find_edition(raw, faults)
    if edition is None:
        return None, faults, {}
    general = root.table("general", required=True)
    # Without [general] its keys cannot be judged; the rest still is.
    silent = general or Table({}, ("general",), Faults({}))
    universal = edition <= 2 and silent.flag("universal") is True
    old = Listed(backends=(), meant=None)
    listed = read_backends(silent, edition) if edition >= 3 else old
    framework = read_framework(root, edition, listed.backends, universal=universal)
    # A framework that is missing or no table is a fault already, and says nothing of components.
    stated = edition == 3 or any(name in raw for name in FRAMEWORKS)
    is_noarch = isinstance(framework, TorchNoarch) and stated
    is_noarch = is_noarch and isinstance(raw.get("torch", {}), dict)
    noarch = ("universal = true" if edition <= 2 else "[torch-noarch]") if is_noarch else None
    sources = read_header_sources(root)
    declared = frozenset(source.name for source in sources)
    components = read_components(root, edition, listed.meant, noarch=noarch, declared=declared)
    check_sources_used(root, sources)
    backends = listed.backends
    if edition <= 2:
        compiled = tuple(sorted({component.backend for component in components}))
        backends = UNIVERSAL if is_noarch else compiled
    build = Build(
        edition=edition,
        general=read_general(silent, edition, backends),
        framework=framework,
        components=components,
        sources=sources,
        testing=read_testing(root),
        warnings=() if "license" in silent else ("missing-license",),
    )
    root.finish()
    check_meaning(build, raw, faults)
    return replace(build, doubts=_in_order(faults.doubts)), faults, raw


def _finish(build: Build | None, faults: Faults, file: str) -> Build:
    if faults.found or build is None:
        raise ConfigError(file, _in_order(faults.found))
    return build


def _in_order(found: list[ConfigFault]) -> tuple[ConfigFault, ...]:
    return tuple(sorted(found, key=lambda fault: (fault.line, fault.path)))


def _syntax_fault(data: bytes, err: Exception) -> ConfigFault:
    """Say where a text stops being TOML."""
    line = data.count(b"\n") + 1 - data.endswith(b"\n")
    message = str(err)
    if isinstance(err, UnicodeDecodeError):
        line = data.count(b"\n", 0, err.start) + 1
        column = err.start - data.rfind(b"\n", 0, err.start)
        message = f"byte {column} of the line is not UTF-8"
    elif isinstance(err, RecursionError):
        line, message = 1, "lists or tables nested too deeply"
    elif not isinstance(err, tomllib.TOMLDecodeError):
        # Python reads no number of so many digits, and does not say where it stands.
        place = re.search(rb"\d{1000}", data)
        line = data.count(b"\n", 0, place.start()) + 1 if place else line
        message = "a number has too many digits"
    elif match := re.search(r" \(at line (\d+), column (\d+)\)", message):
        line = int(match[1])
        message = f"{message[: match.start()]} in column {match[2]}"
    return ConfigFault(line=max(line, 1), path="", kind="syntax", message=f"not TOML: {message}")
