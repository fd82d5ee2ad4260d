"""The rules of TVM FFI's interface: a library exports functions, and asks for nothing but TVM FFI."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from kernel_builder.check.finding import Finding
from kernel_builder.check.python_abi import PREFIXES
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.check.symbols import demangle, mentions_torch
from kernel_builder.check.torch_abi import OPTIONAL
from kernel_builder.policy import read_tvm_ffi_symbols

# Source: tvm/ffi/extra/module.h of apache-tvm-ffi 0.1.15, namespace symbol. With a third underscore
# begins what is no function: documentation, metadata, the context of the library.
_FUNCTION = "__tvm_ffi_"
_OTHER = "__tvm_ffi__"
_NAMESPACES = ("TVMFFI", "_ZN3tvm3ffi", "_ZNK3tvm3ffi")


def list_functions(library: SharedLibrary) -> tuple[str, ...]:
    """Return the functions that a library exports through TVM FFI, by name."""
    names = (symbol.name for symbol in library.facts.symbols if symbol.defined)
    return tuple(
        sorted(
            name.removeprefix(_FUNCTION)
            for name in names
            if name.startswith(_FUNCTION) and not name.startswith(_OTHER)
        )
    )


def find_oldest_release(library: SharedLibrary) -> str | None:
    """Return the oldest release of TVM FFI that has all that a library asks for; None: any has."""
    since = read_tvm_ffi_symbols()
    needed = {since[symbol.name] for symbol in library.undefined if symbol.name in since}
    oldest = min(since.values(), key=Version)
    newest = max(needed, key=Version, default=oldest)
    return None if newest == oldest else newest


def check_tvm_ffi(library: SharedLibrary) -> Iterator[Finding]:
    """Find that a library exports no function, and what it asks for that nobody defines."""
    if not list_functions(library):
        yield Finding(
            file=library.file,
            rule="tvm-ffi-function",
            message="it exports no function through TVM FFI, so Python cannot call it",
            fix="write TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, function) in a file that is compiled",
        )
    known = read_tvm_ffi_symbols()
    for symbol in library.undefined:
        if symbol.version is not None or symbol.binding == "weak":
            continue
        if symbol.name not in known and symbol.name not in OPTIONAL:
            yield _undefined(library, symbol.name)


def _undefined(library: SharedLibrary, name: str) -> Finding:
    if name.startswith(PREFIXES):
        message = "it is of Python, and a kernel of TVM FFI is there without Python's interface"
        fix = "take and return what TVM FFI has types for"
    elif mentions_torch(name) or name.startswith(("aoti_torch_", "torch_")):
        message = "it is of torch, and a kernel of TVM FFI is loaded without torch"
        fix = "take a tvm::ffi::TensorView, or write a [torch] kernel"
    elif name.startswith(_NAMESPACES):
        newest = max(read_tvm_ffi_symbols().values(), key=Version)
        message = f"no release of TVM FFI up to {newest} defines it"
        fix = "call a function that the pinned TVM FFI has"
    else:
        message = "nothing that a variant may rely on defines it, so it could not be called"
        fix = "list the source that defines it in build.toml, or do without it"
    return Finding(
        file=library.file,
        rule="undefined-symbol",
        symbol=demangle(name),
        message=message,
        fix=fix,
    )
