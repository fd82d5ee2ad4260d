"""Reading the ``[kernel.<name>]`` tables."""

from __future__ import annotations

from kernel_builder.config import check
from kernel_builder.config.model import CURRENT_EDITION, Component
from kernel_builder.config.table import Objection, Table, find_close
from kernel_builder.known import read_known
from kernel_spec.backend import BackendKind

# The keys that only the components of one backend have.
OWN_KEYS: dict[BackendKind, tuple[str, ...]] = {
    BackendKind.CUDA: ("cuda-capabilities", "cuda-flags", "cuda-minver"),
    BackendKind.ROCM: ("rocm-archs", "hip-flags"),
    BackendKind.XPU: ("sycl-flags",),
}
_OWNER = {key: backend for backend, keys in OWN_KEYS.items() for key in keys}

# What `language` meant in edition 1. `cuda-hipify`: the same sources for CUDA and for ROCm.
_LANGUAGES: dict[str, tuple[BackendKind, ...]] = {
    "cuda": (BackendKind.CUDA,),
    "cuda-hipify": (BackendKind.CUDA, BackendKind.ROCM),
    "metal": (BackendKind.METAL,),
}


def read_components(
    root: Table,
    edition: int,
    listed: frozenset[str] | None,
    *,
    noarch: str | None,
    declared: frozenset[str] = frozenset(),
) -> tuple[Component, ...]:
    """Read all components, in the order of the file.

    Args:
        root: the whole file.
        edition: the edition it is written in.
        listed: the names that ``general.backends`` lists; None where there is no such list.
        noarch: what says that nothing is compiled, such as ``[torch-noarch]``, or None.
        declared: the names of the file's ``[sources]``, which may be depended on.
    """
    tables = root.table("kernel")
    if tables is None:
        return ()
    if noarch is not None and tables.data:
        message = f"{noarch} compiles nothing; use [torch], or drop the [kernel] tables"
        root.add("kernel", Objection("unknown-key", message))
        return ()
    components: list[Component] = []
    for name in tables.data:
        table = tables.table(name)
        if table is None:
            continue
        objection = check.check_component_name(name)
        if objection is not None:
            tables.add(name, objection)
        components += _read_component(table, name, edition, listed, declared)
    for component in components:
        # Only the second half of a cuda-hipify table can take a name that the file has too.
        twins = [other for other in components if other.name == component.name]
        if len(twins) > 1 and component is twins[0]:
            message = f"[kernel.{component.name.removesuffix('_rocm')}] makes a component of this"
            tables.add(component.name, Objection("duplicate", f"{message} name; rename one"))
    return tuple(components)


def _read_component(
    table: Table,
    name: str,
    edition: int,
    listed: frozenset[str] | None,
    declared: frozenset[str],
) -> list[Component]:
    """Read one table; an old ``cuda-hipify`` table makes two components."""
    backends = _read_backends(table, edition)
    if listed is not None and len(backends) == 1 and backends[0].value not in listed:
        message = f'"{backends[0].value}" is not in general.backends; add it there'
        table.add("backend", Objection("backend-not-listed", message))
    known = declared | set(read_known().native_depends)
    known_depends = check.known_check("unknown-dependency", "native dependency", known)
    depends = table.texts("depends", known_depends, required=True, unique=True) or ()
    src = check.read_paths(table, "src", required=True, unique=True)
    if table.data.get("src") == []:
        note = table.faults.add if edition == CURRENT_EDITION else table.faults.doubt
        message = "found an empty list; expected the files of this component, or no component"
        note((*table.path, "src"), "no-files", message)
    include = check.read_paths(table, "include")
    cxx_flags = table.texts("cxx-flags") or ()
    per_torch = edition >= CURRENT_EDITION and table.flag("per-torch") is True
    # Where the backend is not known, every backend's keys are let through.
    own = {backend: _read_own(table, backend) for backend in backends or tuple(OWN_KEYS)}
    table.finish(_keys_of_others(table, backends))
    components = []
    for index, backend in enumerate(backends):
        flags, archs, cuda_minver = own[backend]
        component = Component(
            name=name if index == 0 else f"{name}_rocm",
            backend=backend,
            depends=depends,
            src=src,
            include=include,
            cxx_flags=cxx_flags,
            backend_flags=flags,
            archs=archs,
            cuda_minver=cuda_minver,
            per_torch=per_torch,
        )
        components.append(component)
    return components


def _read_backends(table: Table, edition: int) -> tuple[BackendKind, ...]:
    """Return the backends that a table stands for; none where it does not say which."""
    if edition <= 2 and "backend" not in table:
        table.known.add("backend")
        language = table.text("language", _check_language)
        if language is None and "language" in table:
            return ()
        return _LANGUAGES[language or "cuda"]
    if edition <= 2 and "language" in table:
        table.known.add("language")
        table.add("language", Objection("duplicate", "backend says it already; keep backend"))
    text = table.text("backend", check.check_compiled_backend, required=True)
    return () if text is None else (BackendKind(text),)


def _check_language(text: str) -> Objection | None:
    if text in _LANGUAGES:
        return None
    message = f'no language "{text}"; expected one of {", ".join(_LANGUAGES)}'
    return Objection("bad-value", message, find_close(text, _LANGUAGES))


def _read_own(
    table: Table, backend: BackendKind
) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Read the keys that only this backend's components have: flags, archs, lowest CUDA."""
    flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    cuda_minver = None
    match backend:
        case BackendKind.CUDA:
            flags = table.texts("cuda-flags") or ()
            archs = table.texts("cuda-capabilities", check.check_capability, unique=True) or ()
            cuda_minver = table.text("cuda-minver", check.check_version)
        case BackendKind.ROCM:
            flags = table.texts("hip-flags") or ()
            archs = table.texts("rocm-archs", check.check_gfx, unique=True) or ()
        case BackendKind.XPU:
            flags = table.texts("sycl-flags") or ()
        case _:
            pass
    return flags, archs, cuda_minver


def _keys_of_others(table: Table, backends: tuple[BackendKind, ...]) -> dict[str, Objection]:
    found = {}
    for key, owner in _OWNER.items():
        if key in table and backends and owner not in backends:
            message = f'belongs to components of "{owner.value}"; this one is "{backends[0].value}"'
            found[key] = Objection("key-of-other-backend", message)
    return found
