"""Imports a verified variant: each copy under its own module name, bytecode neither read nor written.

A variant becomes a package ``kernels.copies.<id>_<12 hex>``, where the hex digits come from its
place and its content. Two copies therefore never share a module, and nothing that is imported later
inside one of them (relatively, absolutely under its public name, from any thread) reaches the other.
It is imported by Python's own machinery, whose locks let one thread run a module while others wait,
and give them the unfinished module where kernels load each other in a circle.

Digests leave bytecode out, so Python's own finder, which would run it, must never look inside
a variant: :class:`_Finder` answers for every name below a kernel's package, with a
source loader that compiles and an extension loader that keeps a register of op libraries.
One op id is one library per process: equal bytes are shared, other bytes are refused
before ``dlopen``, because a second ``TORCH_LIBRARY`` of one name ends the process. The same holds of
its library for the torch that runs, which the kernel's own code opens: once for all copies of it.
"""

from __future__ import annotations

import hashlib
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from kernel_spec.errors import IntegrityError
from kernel_spec.names import module_name
from kernel_spec.per_torch import parse_per_torch
from kernels.errors import KernelImportError, OpConflictError
from kernels.forking import Renewed, guard_imports, importing, was_cut_off
from kernels.linkage.per_torch import find_for_torch, find_per_torch
from kernels.missing_names import explain_missing, name_kernel
from kernels.self_import import SelfName, compile_with, may_import_itself
from kernels.system import detect
from kernels.variant_dir import VariantDir, find_init, hash_file, read_variant

PACKAGE = "kernels.copies"
_LIBRARY_SUFFIXES = (".so", ".pyd", ".dylib")


class _Root(NamedTuple):
    """A kernel's package: its name, what its files are, and the kernels that it needs, by id."""

    name: str
    variant: VariantDir
    self_name: SelfName
    dependencies: Mapping[str, ModuleType]


class _Library(NamedTuple):
    """An op library of this process."""

    path: Path
    sha256: str
    module: ModuleType | None


_state = Renewed(threading.RLock)
guard_imports(f"{PACKAGE}.")
_roots: dict[str, _Root] = {}
_libraries: dict[str, _Library] = {}


def load(variant: VariantDir, dependencies: Mapping[str, ModuleType] | None = None) -> ModuleType:
    """Import a verified variant and return its module; a second call returns the same one.

    Args:
        variant: what to import.
        dependencies: the kernels that it needs, by the id of their repository.

    Raises:
        NotAKernelError: there is no ``__init__.py`` where a kernel has one.
        OpConflictError: its op library has a taken id and other bytes; nothing was executed.
        KernelImportError: an import inside the kernel failed. What else its own code raises
            comes out as it is. In both cases no module of it stays behind. Or a fork of this process
            cut its import off.
    """
    name = package_name(variant)
    if name not in sys.modules:
        _refuse_conflicts(variant)
        register(variant, dependencies or {})
    _refuse_half(name, variant)
    with importing(name):
        # The parent first: a thread that finds it half made by another one would take it for no package.
        __import__(PACKAGE)
        # Not importlib.import_module, which does not give unfinished modules to other threads.
        __import__(name)
    return sys.modules[name]


def register(variant: VariantDir, dependencies: Mapping[str, ModuleType]) -> None:
    """Make a verified variant importable under its ``package_name``.

    Raises:
        NotAKernelError: there is no ``__init__.py`` where a kernel has one.
    """
    folder = find_init(variant).parent.relative_to(variant.path)

    def has(module: str) -> bool:
        path = (folder / module.replace(".", "/")).as_posix()
        return any(file.startswith((f"{path}.", f"{path}/")) for file in variant.sha256)

    name = package_name(variant)
    self_name = SelfName(module_name(variant.metadata.name), name, has)
    with _state.lock:
        known = _roots.get(name)
        if known is None or dependencies:
            _roots[name] = _Root(name, variant, self_name, dependencies)
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())


def dependencies_of(module: str) -> Mapping[str, ModuleType] | None:
    """Return the kernels that the kernel of a module needs, by id; None for any other module."""
    root = _root_of(module)
    return None if root is None else root.dependencies


def load_directory(path: Path) -> ModuleType:
    """Verify a variant directory against its own metadata and import it.

    Raises:
        IntegrityError: files are not those that the metadata's digest promises.
        MetadataError: the metadata cannot be used.
        NotAKernelError: no ``metadata.json`` or no ``__init__.py``.
        OpConflictError, KernelImportError: as :func:`load`.
    """
    return load(read_variant(path))


def package_name(variant: VariantDir) -> str:
    """Return the module name of this copy: its id and 12 hex digits of its place and content."""
    plain_id = re.sub(r"[^0-9A-Za-z_]", "_", variant.metadata.id)
    return f"{PACKAGE}.{plain_id}_{copy_key(variant.path, variant.digest)}"


def copy_key(path: Path, digest: str) -> str:
    """Return the 12 hex digits of a copy's name."""
    return hashlib.sha256(f"{path.resolve()}\0{digest}".encode()).hexdigest()[:12]


def _root_of(module: str) -> _Root | None:
    """Return the kernel that a module belongs to, by the module's name."""
    if not module.startswith(f"{PACKAGE}."):
        return None
    return _roots.get(".".join(module.split(".", 3)[:3]))


def _refuse_half(name: str, variant: VariantDir) -> None:
    """Import nothing of a kernel whose import a fork cut off: what it had begun is not to be begun twice.

    Raises:
        KernelImportError: it is one.
    """
    if was_cut_off(name):
        raise KernelImportError(
            f"The kernel {variant.metadata.name} cannot be imported in this process: it was forked while "
            "another thread imported that kernel, which left it unfinished here. Load kernels before "
            'forking, or start processes with the method "spawn" or "forkserver".',
            variant.path,
        )


def _forget_modules(name: str) -> None:
    # Other threads import meanwhile: the names are copied in one step, and one may be gone.
    for key in list(sys.modules):
        if key.startswith(f"{name}."):
            sys.modules.pop(key, None)


def _root_spec(root: _Root, init: Path) -> ModuleSpec:
    spec = spec_from_file_location(
        root.name,
        init,
        loader=_SourceLoader(root.name, str(init)),
        submodule_search_locations=[str(init.parent)],
    )
    assert spec is not None
    return spec


def spec_of(name: str) -> ModuleSpec | None:
    """Return how a registered variant is imported, by its ``package_name``."""
    root = _roots.get(name)
    return None if root is None else _root_spec(root, find_init(root.variant))


class _Finder:
    """The only finder that looks inside variants."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module below a kernel's package; None for every other name.

        Raises:
            KernelImportError: a fork cut off the kernel's import.
            ModuleNotFoundError: the kernel has no such module.
        """
        root = _root_of(fullname)
        if root is None:
            return None
        # Here too: what unpickles, or imports a part, does not come through load.
        _refuse_half(root.name, root.variant)
        if fullname == root.name:
            return _root_spec(root, find_init(root.variant))
        for entry in path or ():
            finder = FileFinder(
                entry,
                (_ExtensionLoader, EXTENSION_SUFFIXES),
                (_SourceLoader, SOURCE_SUFFIXES),
            )
            if (spec := finder.find_spec(fullname, target)) is not None:
                return spec
        # Not None: the next finder would run stray bytecode.
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


class _SourceLoader(SourceFileLoader):
    """Compiles the source each time; a variant's bytecode is not part of its digest."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source of the module."""
        root = _root_of(fullname)
        assert root is not None
        name = root.self_name
        try:
            source = self.get_data(self.path)
        except OSError as err:
            reason = f"{self.path} cannot be read: {err.strerror or err}"
            raise KernelImportError(
                f"The kernel {root.variant.metadata.name} cannot be imported: {reason}.",
                root.variant.path,
            ) from err
        _require_verified(root.variant, Path(self.path), source)
        if may_import_itself(source, name):
            return compile_with(source, self.path, name)
        code: CodeType = self.source_to_code(source, self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Run the module; a kernel that fails leaves none of its modules behind."""
        with importing(module.__name__, waits=False):
            self._run(module)

    def _run(self, module: ModuleType) -> None:
        root = _root_of(module.__name__)
        assert root is not None
        if module.__name__ != root.name:
            exec(self.get_code(module.__name__), module.__dict__)
            _name_in_package(module.__name__)
            return
        try:
            exec(self.get_code(module.__name__), module.__dict__)
        except BaseException as err:
            _forget_modules(root.name)
            _explain(err, root.variant)
            raise
        metadata = root.variant.metadata
        name_kernel(root.name, f"{metadata.name} (version {metadata.version}, {root.variant.path})")
        explain_missing(module)


def _name_in_package(name: str) -> None:
    """Make a module an attribute of its package.

    Python does that itself, but when other threads may already have imported the module and look for it
    there.
    """
    package, _, attribute = name.rpartition(".")
    if package in sys.modules and name in sys.modules:
        setattr(sys.modules[package], attribute, sys.modules[name])


def _explain(err: BaseException, variant: VariantDir) -> None:
    """Say which kernel an error came from.

    Raises:
        KernelImportError: in place of any other ImportError.
    """
    note = f"while importing the kernel {variant.metadata.name} from {variant.path}"
    if isinstance(err, ImportError) and not isinstance(err, KernelImportError | OpConflictError):
        raise KernelImportError(
            f"The kernel {variant.metadata.name} cannot be imported: {err} ({note}).", variant.path
        ) from err
    err.add_note(note)


def _require_verified(variant: VariantDir, path: Path, source: bytes) -> None:
    """Refuse source that was written since the variant was verified, whatever its time says.

    Raises:
        IntegrityError: these are not the bytes that were verified.
    """
    promised = variant.sha256.get(path.relative_to(variant.path).as_posix())
    if hashlib.sha256(source).hexdigest() != promised:
        raise IntegrityError(
            f"{path} was changed since the variant was verified; it was not executed. "
            "Load the kernel in a new process: it is verified anew."
        )


class _ExtensionLoader(ExtensionFileLoader):
    """Loads an extension module once per op id and process."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Load the library, or return the module of the equal one that is loaded."""
        root = _root_of(spec.name)
        assert root is not None
        path = Path(self.path)
        key, sha256 = _library_key(root.variant, path)
        with importing(spec.name, waits=False), _state.lock:
            known = _refuse_other_bytes(root.variant, path)
            if known is None:
                known = _libraries[key] = _Library(path, sha256, super().create_module(spec))
            if key == root.variant.metadata.id:
                _note_per_torch(root.variant)
            assert known.module is not None
            return known.module


def _note_per_torch(variant: VariantDir) -> None:
    """Register the library for the torch that runs, which the code of a kernel opens after its op library."""
    if not find_per_torch(variant.sha256):
        return
    if (name := find_for_torch(variant.sha256, detect().torch)) is not None:
        path = variant.path / name
        _refuse_other_bytes(variant, path)
        key, sha256 = _library_key(variant, path)
        _libraries.setdefault(key, _Library(path, sha256, None))


def _refuse_conflicts(variant: VariantDir) -> None:
    for name in variant.sha256:
        if name.endswith(_LIBRARY_SUFFIXES):
            _refuse_other_bytes(variant, variant.path / name)


def _refuse_other_bytes(variant: VariantDir, path: Path) -> _Library | None:
    """Return the equal library that is loaded, or None where there is none of its kind.

    Raises:
        OpConflictError: there is one, of other bytes.
    """
    key, sha256 = _library_key(variant, path)
    known = _libraries.get(key)
    if known is not None and known.sha256 != sha256:
        raise OpConflictError(variant.metadata.id, known.path, path)
    return known


def _library_key(variant: VariantDir, path: Path) -> tuple[str, str]:
    """Return what a library is registered under, and the sha256 of its bytes.

    The op library goes by its id, one for a release of torch by its name too; any other extension
    registers no ops and goes by its bytes.
    """
    stem = path.name.partition(".")[0]
    relative = path.relative_to(variant.path).as_posix()
    sha256 = variant.sha256.get(relative) or hash_file(path)
    if stem != variant.metadata.id:
        return f"{stem} {sha256}", sha256
    return (stem if parse_per_torch(path.name) is None else path.name), sha256
