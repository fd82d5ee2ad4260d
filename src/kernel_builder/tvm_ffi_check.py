"""The check of a kernel of TVM FFI: it loads, its functions are found, and its Python imports."""

from __future__ import annotations

import ast
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from kernel_builder import tvm_ffi_probe
from kernel_builder.check.subject import SharedLibrary
from kernel_builder.check.tvm_ffi import find_oldest_release, list_functions
from kernel_builder.environment import Environment
from kernel_builder.import_check import describe_needed, find_loader, run_probe
from kernel_builder.planned import VariantBuild
from kernel_builder.sandbox import OPEN, Sandbox
from kernel_builder.settings import Settings
from kernel_spec.binary import read_elf

# What hands tensors to a kernel, and need not be here for it to be built.
_COMPANIONS = ("torch", "numpy", "jax", "jax_tvm_ffi", "cupy", "triton")


def check_functions(
    made: Path,
    build: VariantBuild,
    environment: Environment,
    *,
    settings: Settings,
    sandbox: Sandbox = OPEN,
) -> tuple[str, ...]:
    """Load the library of a variant with the pinned TVM FFI, and import the variant.

    Args:
        made: the directory of the variant.
        build: the variant.
        environment: what it was built with.
        settings: the environment of programs.
        sandbox: what keeps the kernel's code from the network and the user's files.

    Returns:
        What its author should know, a sentence each: what stays unproved, among others.

    Raises:
        ImportCheckError: it cannot be loaded or imported, with all that the process said.
    """
    library = SharedLibrary(file=build.library, facts=read_elf(made / build.library))
    functions = list_functions(library)
    said = [*find_unknown(made, functions)]
    oldest = find_oldest_release(library)
    if oldest is not None:
        said.append(f"it asks for functions that TVM FFI has since {oldest}: older ones refuse it")
    if environment.toolchain.cpu != platform.machine():
        cpu = environment.toolchain.cpu
        return (*said, f"built for {cpu} and not loaded here: that it imports is not proved")
    lacking = _probe(made, build, environment, functions, settings=settings, sandbox=sandbox)
    if build.skip_import_check is not None:
        said.append(f"not imported, since build.toml says so: {build.skip_import_check}")
    elif lacking is not None:
        said.append(f"not imported, since {lacking} is not installed here")
    else:
        said += describe_needed(build)
    return tuple(said)


def find_unknown(made: Path, functions: tuple[str, ...]) -> Iterator[str]:
    """Say where the Python of a variant calls a function that its library does not export.

    It is no fault: Python that serves several backends may ask which device it is on first.
    """
    for path in sorted(made.rglob("*.py")):
        tree = ast.parse(path.read_bytes())
        names = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "_ops"
            for alias in node.names
            if alias.name == "ops"
        }
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in names:
                    if name not in functions:
                        place = f"{path.relative_to(made).as_posix()}:{node.lineno}"
                        have = ", ".join(functions)
                        yield f"{place}: {owner}.{name} is not in this library, which has {have}"
                case _:
                    pass


def _probe(
    made: Path,
    build: VariantBuild,
    environment: Environment,
    functions: tuple[str, ...],
    *,
    settings: Settings,
    sandbox: Sandbox,
) -> str | None:
    """Load and import a variant in a new, isolated Python; return a module that is not here, or None."""
    assert environment.tvm_ffi is not None
    preload = [] if environment.cuda is None else [environment.cuda.cudart]
    request = {
        "directory": str(made),
        "op_id": build.op_id,
        "library": str(made / build.library),
        "functions": functions,
        "tvm_ffi": str(environment.tvm_ffi.root),
        "allowed": [*_COMPANIONS, *_modules(build)],
        "skip_import": build.skip_import_check is not None,
        "preload": [str(path) for path in preload],
        "loader": find_loader(),
        "needed": [each.repo_id for each in build.kernel_depends],
    }
    with tempfile.TemporaryDirectory(prefix="import-") as scratch:
        whole = run_probe(
            tvm_ffi_probe.__file__,
            request,
            seen=(made, *preload, environment.tvm_ffi.root),
            scratch=Path(scratch),
            lacking=tvm_ffi_probe.LACKING,
            settings=settings,
            sandbox=sandbox,
            what="loaded with TVM FFI",
        )
        return None if whole else (Path(scratch) / "lacking").read_text()


def _modules(build: VariantBuild) -> Iterator[str]:
    """Yield the modules that a variant says it needs, besides TVM FFI itself."""
    yield from (name.replace("-", "_") for name in build.python_depends if name != "tvm-ffi")
    yield from (Requirement(text).name.replace("-", "_") for text in build.python_requires)
