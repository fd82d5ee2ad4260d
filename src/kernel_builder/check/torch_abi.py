"""The rules of torch's interfaces: a stable variant uses the stable one, and all of it exists."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from kernel_builder.check.finding import Finding
from kernel_builder.check.python_abi import PREFIXES
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.check.symbols import demangle, is_foreign_to_torch, mentions_torch
from kernel_builder.policy import Shims, read_shims
from kernel_spec.backend import BackendKind
from kernel_spec.binary import Symbol
from kernel_spec.version import MajorMinor

# The compiler's start files mention these, and the loader does without them.
OPTIONAL = frozenset(
    {"__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}
)
# Functions and objects of the namespaces c10::cuda and at::cuda.
_CUDA = re.compile(r"_Z(T[VIST])?N[rVK]*[RO]?(3c10|2at)4cuda")
_OPENMP = ("GOMP_", "omp_", "__kmpc_")


def check_stable_abi(library: SharedLibrary, target: MajorMinor) -> Iterator[Finding]:
    """Find what is not in torch's stable interface of a version.

    Only what is known to be there passes; weak symbols count too, since a weak typeinfo of a
    torch class is as unstable as the class.
    """
    shims = read_shims()
    for symbol in _unversioned(library):
        since = shims.since.get(symbol.name)
        if since is not None and since <= target:
            continue
        if since is not None:
            yield Finding(
                file=library.file,
                rule="torch-stable-abi",
                symbol=symbol.name,
                message=f"torch has it since {since}, and the variant is for {target} and later",
                fix=f'write stable-abi = "{since}" in build.toml, or do without it',
            )
        elif mentions_torch(symbol.name) and not is_foreign_to_torch(symbol.name):
            yield Finding(
                file=library.file,
                rule="torch-stable-abi",
                symbol=demangle(symbol.name),
                message="it is of torch's C++ interface, which changes with every torch",
                fix="use torch/csrc/stable and torch/headeronly, or build for torch's full interface",
            )
        else:
            yield _undefined(library, symbol, shims)


def list_unproved(
    library: SharedLibrary, exports: Set[str] | None, backend: BackendKind
) -> tuple[str, ...]:
    """Return the symbols that a torch for the backend is to define, and that no list here names.

    They are declared by torch's headers, which the sources were compiled with. That its libraries
    define them is known only where such a torch is.
    """
    if backend is not BackendKind.CUDA or exports is None:
        return ()
    names = (symbol.name for symbol in _unversioned(library) if symbol.binding != "weak")
    return tuple(name for name in names if name not in exports and is_of_cuda(name))


def is_of_cuda(name: str) -> bool:
    """Say whether a mangled name is of what a torch for CUDA alone has: ``c10::cuda``, ``at::cuda``."""
    return _CUDA.match(name) is not None


def check_full_abi(
    library: SharedLibrary, exports: Set[str] | None, backend: BackendKind = BackendKind.CPU
) -> Iterator[Finding]:
    """Find symbols that neither torch nor Python nor the system defines.

    Args:
        library: the library.
        exports: what torch's libraries define; None where the torch of the variant is not
            installed here: then all that involves torch passes.
        backend: what the variant is for; of a torch for CUDA, the namespaces ``c10::cuda`` and
            ``at::cuda`` pass, and :func:`list_unproved` names what of them is not proved.
    """
    shims = read_shims()
    unproved = frozenset(list_unproved(library, exports, backend))
    for symbol in _unversioned(library):
        if symbol.binding == "weak" or symbol.name in unproved:
            continue
        if exports is not None:
            known = symbol.name in exports
        else:
            known = mentions_torch(symbol.name) or symbol.name in shims.since
        if not known:
            yield _undefined(library, symbol, shims)


def _unversioned(library: SharedLibrary) -> Iterator[Symbol]:
    """Yield what no versioned library provides: for torch, or for nobody."""
    for symbol in library.undefined:
        if symbol.version is None and symbol.name not in OPTIONAL:
            if symbol.name.startswith(PREFIXES):
                continue
            yield symbol


def _undefined(library: SharedLibrary, symbol: Symbol, shims: Shims) -> Finding:
    if symbol.name.startswith(_OPENMP):
        fix = "call at::parallel_for (stable: torch::stable::parallel_for) in place of OpenMP"
    elif symbol.name.startswith(("aoti_torch_", "torch_")):
        fix = f"use a function of torch up to {shims.known_to}, or refresh torch_shims.json"
    else:
        fix = "list the source that defines it in build.toml, or do without it"
    return Finding(
        file=library.file,
        rule="undefined-symbol",
        symbol=demangle(symbol.name),
        message="nothing that a variant may rely on defines it, so the import would fail",
        fix=fix,
    )
