"""What a well-formed ``build.toml`` says that cannot be so, or is probably not meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from kernel_builder.config.check import normalize_path
from kernel_builder.config.general import version_key
from kernel_builder.config.lines import KeyPath
from kernel_builder.config.model import (
    CURRENT_EDITION,
    Build,
    Component,
    TorchFramework,
    TvmFfiFramework,
)
from kernel_builder.config.table import Faults
from kernel_builder.known import read_known
from kernel_spec.backend import BackendKind

_CXX = (".cpp", ".cc", ".cxx", ".c")
_DEVICE_CODE = (".cu", ".hip", ".mm", ".metal", ".sycl")
# Faults of the current edition that older ones were allowed, since published projects have them.
STRICTER = frozenset({"bad-arch", "no-files"})


def check_meaning(build: Build, raw: Mapping[str, Any], faults: Faults) -> None:
    """Note what parts of a file say of each other: as a fault, or as a doubt.

    Args:
        build: what could be read of the file; where it has faults, a part of it.
        raw: the whole file.
        faults: where faults and doubts go.
    """
    if build.general.version == 0 and "version" in raw.get("general", {}):
        message = (
            "0 is for trials: get_kernel takes it where it is asked for by number, or where a "
            "repository has no other"
        )
        faults.doubt(("general", "version"), "version-zero", message)
    _check_releases(build, raw, faults)
    _check_bounds(build, faults)
    _check_backends(build, faults)
    _check_per_torch(build, faults)
    if isinstance(build.framework, TvmFfiFramework):
        _check_torch_free(build, faults)
    for first, second in combinations(build.components, 2):
        # Of TVM FFI, each backend is a library of its own.
        if first.backend is second.backend or not isinstance(build.framework, TvmFfiFramework):
            _check_shared(first, second, raw, faults)


def _check_releases(build: Build, raw: Mapping[str, Any], faults: Faults) -> None:
    """Note each CUDA release that is taken for a capability."""
    note = faults.add if build.edition == CURRENT_EDITION else faults.doubt
    for path, text in _capabilities(raw):
        if text.removesuffix("+PTX") not in read_known().cuda_releases:
            continue
        message = f'"{text}" is a CUDA version, not a capability'
        if path[0] == "kernel":
            message += f'; drop it, or write cuda-minver = "{text}"'
        note(path, "bad-arch", message)


def _capabilities(raw: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    tables: list[tuple[KeyPath, Any]] = [(("torch-noarch",), raw.get("torch-noarch"))]
    kernel = raw.get("kernel")
    if isinstance(kernel, dict):
        tables += [(("kernel", name), table) for name, table in kernel.items()]
    for path, table in tables:
        for key in ("cuda-capabilities", "cuda_capabilities"):
            values = table.get(key) if isinstance(table, dict) else None
            for index, text in enumerate(values if isinstance(values, list) else ()):
                if isinstance(text, str):
                    yield (*path, key, index), text


def _check_bounds(build: Build, faults: Faults) -> None:
    """Note components and interfaces for which the bounds leave no toolkit and no torch."""
    highest = build.general.cuda.maxver
    for component in build.components:
        lowest = component.cuda_minver
        if lowest and highest and version_key(highest) < version_key(lowest):
            message = f'"{lowest}" is above the highest CUDA of the project, "{highest}"'
            faults.add(("kernel", component.name, "cuda-minver"), "bad-range", message)
    if not isinstance(build.framework, TorchFramework) or build.framework.torch.maxver is None:
        return
    maxver = build.framework.torch.maxver
    for kind, abi in build.framework.stable_abi.items():
        if version_key(maxver) < version_key(abi):
            path: KeyPath = ("torch", "stable-abi", kind.value)
            path = path if path in faults.places else path[:-1]
            message = f'"{abi}" is above the highest torch of the project, maxver = "{maxver}"'
            faults.add(path, "bad-range", message)
            return


def _check_backends(build: Build, faults: Faults) -> None:
    """Note backends that no component is for where others have some: they get Python alone."""
    compiled = {component.backend for component in build.components}
    if not compiled or not isinstance(build.framework, TorchFramework):
        return
    for kind in build.general.backends:
        if kind not in compiled:
            message = f'no [kernel] table is for "{kind.value}"; its variant holds Python alone'
            faults.doubt(("general", "backends"), "no-component", message)


def _check_per_torch(build: Build, faults: Faults) -> None:
    """Note per-torch components that nothing for torch's stable ABI stands beside, or that are no plain C++."""
    stable = build.framework.stable_abi if isinstance(build.framework, TorchFramework) else {}
    others = {each.backend for each in build.components if not each.per_torch}
    for component in build.components:
        if not component.per_torch:
            continue
        kind = component.backend
        path: KeyPath = ("kernel", component.name, "per-torch")
        if kind not in stable:
            message = (
                "is for projects for torch's stable ABI; a library for the full interface is for one "
                'torch anyway: drop it, or write stable-abi = "2.10" under [torch]'
            )
            faults.add(path, "per-torch", message)
        elif kind not in others:
            message = (
                f'no other component is for "{kind.value}", and a kernel has to work without its '
                "per-torch libraries; add one, or drop per-torch"
            )
            faults.add(path, "per-torch", message)
        for index, text in enumerate(component.src):
            if text.lower().endswith(_DEVICE_CODE):
                message = f'"{text}" is device code; a per-torch component is C++ alone'
                faults.add(("kernel", component.name, "src", index), "per-torch", message)
        if not any(text.lower().endswith(_CXX) for text in component.src):
            message = (
                "none of its files is C++ to compile (.cpp), so there is nothing for each torch"
            )
            faults.add(("kernel", component.name, "src"), "per-torch", message)


def _check_torch_free(build: Build, faults: Faults) -> None:
    """Note components of a kernel of TVM FFI that ask for torch, whose headers are not searched."""
    for component in build.components:
        if "torch" in component.depends:
            path: KeyPath = ("kernel", component.name, "depends", component.depends.index("torch"))
            message = '"torch" brings nothing to a kernel of TVM FFI, which is built without it'
            faults.doubt(path, "torch-unused", message)


def _check_shared(
    first: Component, second: Component, raw: Mapping[str, Any], faults: Faults
) -> None:
    """Note a file that two components of one library list: it is compiled once, for both."""
    gpu = {first.backend, second.backend} - {BackendKind.CPU}
    if len(gpu) == 2 or second.name not in raw.get("kernel", {}):
        return
    if first.backend is second.backend and _flags(first) == _flags(second):
        return
    for text in second.src:
        if text in first.src and not text.endswith((".h", ".hpp", ".cuh", ".inc")):
            index = [
                normalize_path(each) if isinstance(each, str) else ""
                for each in raw["kernel"][second.name]["src"]
            ].index(text)
            message = (
                f'"{text}" stands in [kernel.{first.name}] too; it is compiled once, with the '
                "flags of both"
            )
            faults.doubt(("kernel", second.name, "src", index), "shared-file", message)


def _flags(component: Component) -> tuple[object, ...]:
    return component.cxx_flags, component.backend_flags, component.include
