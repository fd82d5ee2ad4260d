"""The package of this process's kernels: finds again, in another process, the copy that a pickle names.

A kernel is imported as ``kernels.copies.<id>_<12 hex>`` (:mod:`kernels.importer`), so a pickled
function of it names that module. In a process that has not loaded the kernel, such as a spawned
worker, the name is looked up among the cached variants and the paths of ``LOCAL_KERNELS``, and the
copy is verified and imported like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.settings import Settings
    from kernels.variant_dir import VariantDir

__path__: list[str] = []


class _Recovery:
    """Asked after the importer's own finder: for copies that this process has not loaded."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - Python's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find a copy by its name; None for any other module."""
        package, _, name = fullname.rpartition(".")
        if package != __name__:
            return None
        variant = _find_copy(name)
        if variant is None:
            raise ModuleNotFoundError(
                f"The kernel copy {name} is neither in the cache nor at a path of LOCAL_KERNELS. "
                "Load the kernel in this process first, by the same call as in the process that "
                "named it, and with the same KERNELS_CACHE.",
                name=fullname,
            )
        from kernels import importer
        from kernels.load import load_dependencies

        importer.register(variant, load_dependencies(variant.metadata))
        return importer.spec_of(fullname)


def _find_copy(name: str) -> VariantDir | None:
    from kernels.importer import package_name
    from kernels.settings import read_settings

    settings = read_settings()
    for variant in (*_cached(name, settings), *_overriding(settings)):
        if package_name(variant) == f"{__name__}.{name}":
            return variant
    return None


def _cached(name: str, settings: Settings) -> Iterator[VariantDir]:
    from kernels.importer import copy_key
    from kernels.store import Store
    from kernels.variant_dir import VariantDir
    from kernels.verify import Damage, read_manifest, verify_installed

    folder = Store(settings.cache).folder("variants")
    for place in folder.iterdir() if folder.is_dir() else ():
        manifest = read_manifest(place)
        if isinstance(manifest, Damage):
            continue
        if not name.endswith(copy_key(place / manifest.variant, place.name)):
            continue
        if isinstance(variant := verify_installed(place, settings.state), VariantDir):
            yield variant


def _overriding(settings: Settings) -> Iterator[VariantDir]:
    from kernel_spec.errors import KernelError
    from kernels.local import choose_local

    for path in settings.overrides.values():
        try:
            yield choose_local(path, backend=None)
        except KernelError:
            continue


if not any(type(finder).__name__ == "_Recovery" for finder in sys.meta_path):
    sys.meta_path.append(_Recovery())
