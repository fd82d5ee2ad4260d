"""From a library and Python files to the directory of a variant, which appears whole or not at all."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernel_builder.planned import VariantBuild
from kernel_spec import metadata as metadata_file
from kernel_spec.digest import digest_tree
from kernel_spec.metadata import Metadata, format_metadata
from kernel_spec.provenance import Provenance
from kernel_spec.version import RELEASE

OPS_FILE = "_ops.py"

# The published client reads kernel dependencies since 0.17, the rest since 0.14.
_MINVER = (0, 14, 0)
_MINVER_DEPENDS = (0, 17, 0)

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100

_OPS_COMPILED = '''"""The ops of this kernel, as torch registers them."""

import torch

from . import {id} as _library  # noqa: F401  (importing it registers the ops)

ops = torch.ops.{id}


def add_op_namespace_prefix(op_name: str) -> str:
    """Return the full name of an op: ``relu`` gives ``{id}::relu``."""
    return f"{id}::{{op_name}}"
'''

_OPS_NOARCH = '''"""The namespace that this kernel registers its ops under."""

import torch

ops = torch.ops.{id}


def add_op_namespace_prefix(op_name: str) -> str:
    """Return the full name of an op: ``relu`` gives ``{id}::relu``."""
    return f"{id}::{{op_name}}"
'''


_OPS_TVM_FFI = '''"""The functions of this kernel, as TVM FFI exports them."""

from pathlib import Path

import tvm_ffi

# A text: the first releases of TVM FFI 0.1 take no path.
ops = tvm_ffi.load_module(str(Path(__file__).with_name("{id}.so")))


def add_op_namespace_prefix(op_name: str) -> str:
    """Return a name for torch.library or jax.ffi that no other kernel has: ``{id}::relu``."""
    return f"{id}::{{op_name}}"
'''


_IMPORTS_PER_TORCH = """import ctypes
import os
import re
import threading
from pathlib import Path

import torch
"""

_LOAD_PER_TORCH = r'''

def load_per_torch() -> bool:
    """Load the library of this kernel for the very torch that runs; say whether it is here.

    There is one for each release of torch that the kernel was built for; without it, all works and
    something of it works otherwise.
    """
    # Copies of this kernel share the library of their ops, and so what is kept in its module.
    shared = vars(_library)
    if "per_torch_lock" not in shared and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_begin_child)
    with shared.setdefault("per_torch_lock", threading.Lock()):
        if "per_torch" not in shared:
            pattern = r"{release}"  # a release: what comes before one has the interface of none
            release = re.fullmatch(pattern, torch.__version__, re.ASCII)
            if release is None or "per_torch_cut_off" in shared:
                return False
            place = Path(__file__).with_name(f"{id}.torch{{release[1]}}{{release[2]}}.so")
            if not place.is_file():
                return False
            try:
                shared["per_torch"] = ctypes.CDLL(str(place))
            except OSError:
                return False
    return True


def _begin_child() -> None:
    """Renew the lock in a forked child: the thread that may hold it is not there.

    What such a thread was loading may be half there, so that the child does without.
    """
    shared = vars(_library)
    lock = shared.get("per_torch_lock")
    if lock is not None and lock.locked():
        shared["per_torch_cut_off"] = True
    shared["per_torch_lock"] = threading.Lock()
'''

_NO_PER_TORCH = '''

def load_per_torch() -> bool:
    """Say that nothing for one torch alone is here: this variant has no machine code."""
    return False
'''


def format_ops(
    op_id: str, *, compiled: bool, tvm_ffi: bool = False, per_torch: bool = False
) -> str:
    """Write the Python file through which a kernel reaches its ops.

    Args:
        op_id: the namespace of the ops.
        compiled: whether a library registers them, which is imported then.
        tvm_ffi: whether a library exports them through TVM FFI, which loads it then.
        per_torch: whether the project has per-torch components, which the kernel loads by it.
    """
    if tvm_ffi:
        return _OPS_TVM_FFI.format(id=op_id)
    text = _OPS_COMPILED if compiled else _OPS_NOARCH
    if per_torch and compiled:
        text = text.replace("import torch\n", _IMPORTS_PER_TORCH, 1) + _LOAD_PER_TORCH
    elif per_torch:
        text += _NO_PER_TORCH
    return text.format(id=op_id, release=RELEASE)


def write_variant(
    project: Path,
    build: VariantBuild,
    library: Path | None,
    *,
    parts: Iterable[Path] = (),
    provenance: Provenance,
    target: Path,
    extension: Mapping[str, Any] | None = None,
) -> None:
    """Write all files of a variant into a new directory.

    Args:
        project: the directory of the project.
        build: the variant.
        library: its library, or None for a variant without machine code.
        parts: its per-torch libraries.
        provenance: what ``metadata.json`` says of its origin.
        target: the directory.
        extension: what ``metadata.json`` says besides, under our own key.
    """
    target.mkdir(parents=True)
    package = project / build.extension / build.module
    for path in build.package:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / path, place)
    tvm_ffi = build.tvm_ffi is not None
    ops = format_ops(
        build.op_id,
        compiled=library is not None,
        tvm_ffi=tvm_ffi,
        per_torch=build.has_per_torch,
    )
    (target / OPS_FILE).write_bytes(ops.encode())
    for made in (*parts, *([] if library is None else [library])):
        shutil.copyfile(made, target / made.name)
    _set_modes(target)
    document = format_metadata(_describe(build, target, provenance, extension or {}))
    place = target / metadata_file.FILE_NAME
    place.write_bytes(document)
    place.chmod(0o644)


def describe_testing(build: VariantBuild) -> dict[str, Any]:
    """Return what ``metadata.json`` says under our own key of packages and of the import check."""
    found: dict[str, Any] = {}
    if build.python_requires:
        found[metadata_file.PYTHON_REQUIRES] = list(build.python_requires)
    if build.skip_import_check is not None:
        found["import-check"] = f"skipped: {build.skip_import_check}"
    return found


def _describe(
    build: VariantBuild, target: Path, provenance: Provenance, extension: Mapping[str, Any]
) -> Metadata:
    return Metadata(
        name=build.name,
        id=build.op_id,
        version=build.version,
        license=build.license,
        backend=build.backend,
        archs=build.archs,
        python_depends=build.python_depends,
        kernel_depends=build.kernel_depends,
        minver=_MINVER_DEPENDS if build.kernel_depends else _MINVER,
        upstream=build.upstream,
        source=build.source,
        digest=digest_tree(target),
        provenance=provenance,
        extension=extension,
    )


def _set_modes(root: Path) -> None:
    root.chmod(0o755)
    for path in root.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def install_variant(made: Path, target: Path) -> None:
    """Put a variant in its place in one step; an older one is replaced whole.

    Whoever looks sees the old variant or the new one, and a kill in between leaves one of them. A link
    that stands there makes way; what it leads to stays as it is.

    Args:
        made: the finished directory; it is gone afterwards.
        target: its place.

    Raises:
        NotADirectoryError: a file is in that place.
    """
    refuse_obstacle(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if made.stat().st_dev != target.parent.stat().st_dev:
        near = target.parent / f".{target.name}.new"
        _remove(near)
        shutil.copytree(made, near)
        _set_modes(near)
        shutil.rmtree(made)
        made = near
    _flush(made)
    if not os.path.lexists(target):
        made.rename(target)
        return
    try:
        _exchange(made, target)
    except OSError as err:
        if err.errno not in (errno.ENOSYS, errno.EINVAL):
            raise
        # This file system cannot exchange: for a moment there is no variant, never half a one.
        old = made.with_name(f".{target.name}.old")
        _remove(old)
        target.rename(old)
        made.rename(target)
        made = old
    _remove(made)


def refuse_obstacle(target: Path) -> None:
    """Refuse to install a variant where a file stands, before anything is built.

    Raises:
        NotADirectoryError: naming it.
    """
    if target.is_file() and not target.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(target))


def remove_leftovers(target: Path) -> None:
    """Remove what a build that was killed while it installed this variant left beside it."""
    for suffix in ("new", "old"):
        _remove(target.parent / f".{target.name}.{suffix}")


def _remove(place: Path) -> None:
    """Remove a directory, or a link to one."""
    if place.is_symlink():
        place.unlink()
    else:
        shutil.rmtree(place, ignore_errors=True)


def _exchange(first: Path, second: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = (os.fsencode(first), os.fsencode(second))
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(first))


def _flush(root: Path) -> None:
    for path in [*root.rglob("*"), root]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
