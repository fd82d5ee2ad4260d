"""The inputs of a project's builds as they are here, by version and hash, as a lock records them."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kernel_builder.archives import hash_file, hash_tree
from kernel_builder.depends import find_origins
from kernel_builder.environment import find_pinned
from kernel_builder.inputs import identify_cuda_headers, walk_cuda_headers
from kernel_builder.lockfile import Kind
from kernel_builder.planned import VariantBuild
from kernel_builder.process import run
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cpu import Compiler, get_compiler, read_toolchain, target_cpu
from kernel_builder.toolchain.cuda import CudaToolchain, get_cuda, list_pinned
from kernel_builder.toolchain.torch import get_torch
from kernel_builder.toolchain.tvm_ffi import describe_pinned
from kernel_builder.toolchain.wheels import read_cuda_wheels
from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor
from kernel_spec.whole_file import write_whole

_PARTS = ("cc1plus", "as", "ld")


def collect_inputs(
    variants: Iterable[VariantBuild], settings: Settings, *, every_toolkit: bool = False
) -> dict[str, dict[str, Any]]:
    """Return everything that goes into variants, besides the project's own files.

    Args:
        variants: what is, or could be, built.
        settings: what the environment says.
        every_toolkit: whether all pinned CUDA toolkits count, since each build chooses its own.

    Raises:
        ToolchainError: something is not there.
        CommandError: the compiler cannot be used.
    """
    from kernels._version import __version__

    found: dict[str, dict[str, Any]] = {
        "builder": {"kind": Kind.BUILDER.value, "version": __version__}
    }
    compiled = [variant for variant in variants if variant.units]
    if not compiled:
        return found
    cpu = target_cpu(settings)
    name = "compiler" if cpu == platform.machine() else f"compiler-{cpu}"
    found[name] = _describe_compiler(get_compiler(settings), settings)
    found["python"] = {"kind": Kind.SYSTEM.value, "version": platform.python_version()}
    if any(variant.tvm_ffi is None and not variant.is_pinned for variant in compiled):
        found["torch"] = _describe_torch(settings)
    built = [each for variant in compiled for each in (variant, *variant.per_torch)]
    for each in (each for each in built if each.is_pinned):
        pinned = find_pinned(each)
        found[f"torch-{pinned.release}-{pinned.machine}"] = {
            "kind": Kind.WHEELS.value,
            "version": pinned.version,
            "sha256": pinned.wheel,
        }
    if any(variant.tvm_ffi is not None for variant in compiled):
        found["tvm-ffi"] = {"kind": Kind.HEADERS.value, **describe_pinned()}
    for variant in compiled:
        if variant.backend is BackendKind.CUDA:
            versions = {
                variant.toolkit,
                *(list_pinned(cpu) if every_toolkit and settings.cuda_home is None else ()),
            }
            found |= {f"cuda-{version}": _describe_cuda(version, settings) for version in versions}
        for origin in find_origins(variant.depends, variant.sources, settings):
            found[origin.name] = {"kind": Kind.HEADERS.value, **origin.record}
    return found


def _describe_torch(settings: Settings) -> dict[str, Any]:
    torch = get_torch()
    return {
        "kind": Kind.HEADERS.value,
        "version": torch.build.version,
        "sha256": _remember(
            settings, f"torch {torch.identity}", lambda: hash_tree(torch.root, ["include"])
        ),
    }


def _describe_cuda(version: MajorMinor | None, settings: Settings) -> dict[str, Any]:
    if settings.cuda_home is not None:
        cuda = get_cuda(settings)
        headers = identify_cuda_headers(cuda.include, shared=cuda.shares_include)
        key = f"cuda {cuda.identity} {headers}"
        sha256 = _remember(settings, key, lambda: _hash_toolkit(cuda))
        return {"kind": Kind.SYSTEM.value, "version": cuda.answer.release, "sha256": sha256}
    # A lock is for every machine, so it has the wheels of each.
    wheels = {
        toolkit.machine: {
            wheel.name: {"version": wheel.version, "sha256": wheel.sha256}
            for wheel in toolkit.wheels
        }
        for toolkit in read_cuda_wheels()
        if toolkit.version == version
    }
    return {"kind": Kind.WHEELS.value, "version": str(version), "wheels": wheels}


def _hash_toolkit(cuda: CudaToolchain) -> str:
    """Return one hash of all of a user's toolkit that goes into a build, wherever its files lie."""
    digest = hashlib.sha256()
    for name, data in sorted(
        (path.name, path.read_bytes()) for path in (*cuda.answer.programs, cuda.cudart)
    ):
        digest.update(f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode())
    headers = map(Path, walk_cuda_headers(cuda.include, shared=cuda.shares_include))
    for path in sorted(headers, key=lambda path: (str(path.parent), path.name)):
        line = f"{hash_file(path)}  {path.relative_to(cuda.include)}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _describe_compiler(compiler: Compiler, settings: Settings) -> dict[str, Any]:
    """Return what tells the system's compiler from another: its words, and a hash of its files."""
    text = _remember(
        settings, f"compiler {compiler.identity}", lambda: _read_compiler(compiler, settings)
    )
    version, assembler, sha256 = text.split("\n")
    return {
        "kind": Kind.SYSTEM.value,
        "version": version,
        "assembler": assembler,
        "sha256": sha256,
    }


def _read_compiler(compiler: Compiler, settings: Settings) -> str:
    def ask(*arguments: str) -> str:
        return run([*compiler.command, *arguments], variables=settings.variables).output.strip()

    toolchain = read_toolchain(compiler, settings)
    parts = [Path(ask(f"-print-prog-name={name}")) for name in _PARTS]
    search = settings.search_path.split(os.pathsep)
    places = [
        next(
            (path for path in (Path(directory, part) for directory in search) if path.is_file()),
            part,
        )
        for part in parts
    ]
    files = [place for place in places if place.is_file()] or [Path(compiler.command[0])]
    digest = hashlib.sha256()
    for place in (*files, *(toolchain.files[name] for name in sorted(toolchain.files))):
        digest.update(hashlib.sha256(place.read_bytes()).digest())
    said = run([places[1], "--version"], variables=settings.variables, check=False).output
    assembler = (said.splitlines() or ["unknown"])[0].strip()
    return f"{toolchain.version}\n{assembler}\n{digest.hexdigest()}"


def _remember(settings: Settings, key: str, make: Callable[[], str]) -> str:
    """Return a text that costs time to make; it is made once for each key."""
    name = hashlib.sha256(f"{sys.version}\n{key}".encode(errors="surrogateescape")).hexdigest()[:32]
    place = settings.cache / "inventory" / name
    try:
        return place.read_text(encoding="utf-8")
    except OSError:
        pass
    text = make()
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, text.encode(), lasting=False)
    return text
