"""The rules' data: symbol versions, permitted libraries, the frameworks' functions and what replaces what."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor, parse_major_minor

_SYMBOL_VERSION = re.compile(r"([A-Z]+)_(\d+(?:\.\d+)+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class SymbolVersion:
    """A symbol version such as ``GLIBC_2.28``: its family and its numbers."""

    family: str
    numbers: tuple[int, ...]


def parse_symbol_version(text: str) -> SymbolVersion | None:
    """Read a symbol version; None for names without numbers such as ``GLIBC_PRIVATE``."""
    match = _SYMBOL_VERSION.fullmatch(text)
    if match is None:
        return None
    return SymbolVersion(match[1], tuple(int(part) for part in match[2].split(".")))


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionCaps:
    """The newest symbol version of each family that a system is sure to have.

    Attributes:
        name: the name of the policy, such as ``manylinux_2_28``.
        newest: for each family, its numbers.
    """

    name: str
    newest: Mapping[str, tuple[int, ...]]

    def allow(self, version: SymbolVersion) -> bool:
        """Say whether the version is within the cap of its family; other families are not."""
        cap = self.newest.get(version.family)
        return cap is not None and version.numbers <= cap

    def describe(self, family: str) -> str:
        """Write the cap of a family as symbol versions do."""
        return f"{family}_{'.'.join(str(number) for number in self.newest[family])}"


@cache
def read_version_caps() -> VersionCaps:
    """Read the newest versions of the C and C++ libraries that a variant may need."""
    document = _read("manylinux.json")
    newest = {
        family: tuple(int(part) for part in text.split("."))
        for family, text in document["versions"].items()
    }
    return VersionCaps(name=document["name"], newest=newest)


@cache
def list_policies() -> tuple[str, ...]:
    """Return the names of the policies of PEP 600 that are known, oldest first."""
    return tuple(sorted(_read("manylinux_versions.json")["policies"], key=_order))


def find_policy(name: str, machine: str) -> VersionCaps | None:
    """Read the newest versions that a policy of PEP 600 has on a machine; None: it has none."""
    machines = _read("manylinux_versions.json")["policies"].get(name, {})
    if machine not in machines:
        return None
    newest = {
        family: tuple(int(part) for part in text.split("."))
        for family, text in machines[machine].items()
    }
    return VersionCaps(name=name, newest=newest)


def _order(name: str) -> list[int]:
    return [int(part) for part in name.split("_")[1:]]


@cache
def read_system_libraries(machine: str) -> frozenset[str]:
    """Read the names of the system's libraries that a variant may ask for."""
    libraries = _read("manylinux.json")["libraries"]
    return frozenset([*libraries["all"], *libraries.get(machine, ())])


@cache
def read_torch_libraries(backend: BackendKind) -> frozenset[str]:
    """Read the names of torch's libraries that a variant of a backend may ask for."""
    libraries = _read("torch_libraries.json")["torch"]
    return frozenset([*libraries["all"], *libraries.get(backend.value, ())])


@cache
def read_tvm_ffi_libraries() -> frozenset[str]:
    """Read the names of TVM FFI's libraries that a variant may ask for."""
    return frozenset(_read("torch_libraries.json")["tvm-ffi"])


@cache
def read_tvm_ffi_symbols() -> Mapping[str, str]:
    """Read which release of TVM FFI first has each name that its library defines."""
    since = _read("tvm_ffi_symbols.json")["since"]
    return {name: release for release, names in since.items() for name in names}


@cache
def read_toolkit_libraries(backend: BackendKind) -> frozenset[str]:
    """Read the names of the device toolkit's libraries that a variant may ask for."""
    return frozenset(_read("torch_libraries.json")["toolkit"].get(backend.value, ()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Shims:
    """The functions of torch's stable C interface.

    Attributes:
        known_to: the newest torch that the table knows.
        since: for each function, the torch that first has it.
    """

    known_to: MajorMinor
    since: Mapping[str, MajorMinor]


@cache
def read_shims() -> Shims:
    """Read which torch first has each function of its stable C interface."""
    document = _read("torch_shims.json")
    since = {
        name: parse_major_minor(version)
        for version, names in document["functions"].items()
        for name in names
    }
    return Shims(known_to=parse_major_minor(document["torch"]), since=since)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """What stands in torch's stable interface for something of the full one.

    Attributes:
        kind: ``header``, ``macro``, ``name`` or ``method``.
        match: the spellings, with ``*`` for any end.
        write: what to use instead.
        since: the torch that first has it; None where nothing of torch replaces it.
    """

    kind: str
    match: tuple[str, ...]
    write: str
    since: MajorMinor | None = None


@cache
def read_replacements() -> tuple[Replacement, ...]:
    """Read what replaces what, in the order in which entries are tried."""
    place = files(__name__).joinpath("stable_replacements.toml")
    document = tomllib.loads(place.read_text(encoding="utf-8"))
    return tuple(
        Replacement(
            kind=entry["kind"],
            match=tuple(entry["match"]),
            write=entry["write"],
            since=parse_major_minor(entry["since"]) if "since" in entry else None,
        )
        for entry in document["entry"]
    )


def _read(name: str) -> Any:
    return json.loads(files(__name__).joinpath(name).read_text(encoding="utf-8"))
