"""Reading the framework section: ``[torch]``, ``[torch-noarch]`` or ``[tvm-ffi]``."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_builder.config import check
from kernel_builder.config.edition import FRAMEWORKS
from kernel_builder.config.general import read_bounds
from kernel_builder.config.model import (
    Framework,
    TorchFramework,
    TorchNoarch,
    TvmFfiFramework,
)
from kernel_builder.config.table import Check, Objection, Table, find_close
from kernel_spec.backend import BackendKind


def read_framework(
    root: Table, edition: int, backends: tuple[BackendKind, ...], *, universal: bool
) -> Framework:
    """Read the one framework section of a file.

    Args:
        root: the whole file.
        edition: the edition it is written in.
        backends: what the project is for; a ``stable-abi`` without a table holds for all of them.
        universal: an old edition's word for: nothing is compiled.
    """
    sections = [name for name in root.data if name in FRAMEWORKS]
    root.known.update(FRAMEWORKS)
    if not sections:
        # A section whose name is misspelt is one fault, told with the other unknown keys.
        misspelt = [key for key in root.data if key != "kernel" and find_close(key, FRAMEWORKS)]
        if edition != 3 and not misspelt:
            message = "no framework; expected [torch], [torch-noarch] or [tvm-ffi]"
            root.add("torch", Objection("no-framework", message))
        return TorchNoarch()
    for name in sections[1:]:
        message = f"a second framework; the file already has [{sections[0]}]; keep one"
        root.add(name, Objection("two-frameworks", message))
    table = root.table(sections[0])
    if table is None:
        return TorchNoarch()
    match sections[0]:
        case "torch":
            return _read_torch(table, edition, backends, universal=universal)
        case "torch-noarch":
            return _read_noarch(table)
        case _:
            return _read_tvm_ffi(table)


def _read_torch(
    table: Table, edition: int, backends: tuple[BackendKind, ...], *, universal: bool
) -> TorchFramework | TorchNoarch:
    if edition <= 2:
        universal = table.flag("universal") or universal
    torch = TorchFramework(
        src=check.read_paths(table, "src", unique=True),
        include=check.read_paths(table, "include"),
        pyext=table.texts("pyext", check.check_extension, unique=True) or (),
        torch=read_bounds(table, "minver", "maxver"),
        cxx_flags=table.texts("cxx-flags") or (),
        stable_abi=_read_stable_abi(table, edition, backends) if edition >= 3 else {},
        noarch=_read_noarch_backends(table, backends) if edition >= 5 else (),
    )
    table.finish()
    return TorchNoarch(pyext=torch.pyext) if universal else torch


def _read_stable_abi(
    table: Table, edition: int, backends: tuple[BackendKind, ...]
) -> Mapping[BackendKind, str]:
    key = "stable-abi"
    if not isinstance(table.data.get(key), dict):
        version = table.text(key, check.check_stable_abi)
        return {} if version is None else dict.fromkeys(backends, version)
    table.known.add(key)
    if edition < 5:
        message = "a table needs edition 5; write edition = 5 under [general], or one version"
        table.add(key, Objection("needs-edition-5", message))
        return {}
    versions = table.table(key)
    assert versions is not None
    found = {}
    for name in versions.data:
        version = versions.text(name, check.check_stable_abi)
        objection = check.check_backend(name)
        if objection is not None:
            versions.add(name, objection)
        elif backends and BackendKind(name) not in backends:
            message = f'"{name}" is not in general.backends; add it there'
            versions.add(name, Objection("backend-not-listed", message))
        elif version is not None:
            found[BackendKind(name)] = version
    return found


def _read_noarch_backends(
    table: Table, backends: tuple[BackendKind, ...]
) -> tuple[BackendKind, ...]:
    found = []
    for name in table.texts("noarch", check.check_backend, unique=True) or ():
        if backends and BackendKind(name) not in backends:
            message = f'"{name}" is not in general.backends; add it there'
            table.add("noarch", Objection("backend-not-listed", message))
        else:
            found.append(BackendKind(name))
    return tuple(found)


def _read_noarch(table: Table) -> TorchNoarch:
    noarch = TorchNoarch(
        pyext=table.texts("pyext", check.check_extension, unique=True) or (),
        cuda_capabilities=_read_either(table, "cuda-capabilities", check.check_capability),
        rocm_archs=_read_either(table, "rocm-archs", check.check_gfx),
    )
    table.finish()
    return noarch


def _read_either(table: Table, key: str, test: Check) -> tuple[str, ...]:
    """Read a list whose key is spelt with dashes in the guides and ``_`` in existing files."""
    other = key.replace("-", "_")
    values = table.texts(key, test, unique=True) or ()
    others = table.texts(other, test, unique=True) or ()
    if key in table and other in table:
        table.add(other, Objection("duplicate", f"the same as {key}; keep one"))
    return values or others


def _read_tvm_ffi(table: Table) -> TvmFfiFramework:
    tvm = TvmFfiFramework(
        src=check.read_paths(table, "src", required=True, unique=True),
        include=check.read_paths(table, "include"),
        pyext=table.texts("pyext", check.check_extension, unique=True) or (),
        cxx_flags=table.texts("cxx-flags") or (),
    )
    table.finish()
    return tvm
