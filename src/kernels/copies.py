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
from itertools import chain
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
        unusable: list[str] = []
        variant = _find_copy(name, unusable)
        if variant is None:
            found = "".join(f"\n  {each}" for each in unusable)
            raise ModuleNotFoundError(
                f"The kernel copy {name} is neither in the cache nor at a path of LOCAL_KERNELS. "
                "Load the kernel in this process first, by the same call as in the process that "
                "named it, and with the same KERNELS_CACHE."
                + (f" What is there and cannot be used, and may be it:{found}" if found else ""),
                name=fullname,
            )
        from kernels import importer
        from kernels.load import load_dependencies

        importer.register(variant, load_dependencies(variant.metadata))
        return importer.spec_of(fullname)


def _find_copy(name: str, unusable: list[str]) -> VariantDir | None:
    """Return the copy, or None; what could not be looked into is added to the list."""
    from kernels.importer import package_name
    from kernels.settings import read_settings

    settings = read_settings()
    for variant in chain(_cached(name, settings, unusable), _overriding(settings, unusable)):
        if package_name(variant) == f"{__name__}.{name}":
            return variant
    return None


def _cached(name: str, settings: Settings, unusable: list[str]) -> Iterator[VariantDir]:
    from kernels.errors import CacheError
    from kernels.importer import copy_key
    from kernels.store import Store
    from kernels.variant_dir import VariantDir
    from kernels.verify import Damage, read_manifest, verify_installed

    folder = Store(settings.cache).folder("variants")
    try:
        places = list(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as err:
        raise CacheError(folder, err) from None
    for place in places:
        manifest = read_manifest(place)
        if isinstance(manifest, Damage):
            unusable.append(str(manifest).strip())
            continue
        if not name.endswith(copy_key(place / manifest.variant, place.name)):
            continue
        match verify_installed(place, settings.state):
            case VariantDir() as variant:
                yield variant
            case Damage() as damage:
                unusable.append(str(damage).strip())
            case None:
                continue


def _overriding(settings: Settings, unusable: list[str]) -> Iterator[VariantDir]:
    from kernel_spec.errors import KernelError
    from kernels.local import choose_local

    for path in settings.overrides.values():
        try:
            yield choose_local(path, backend=None)
        except KernelError as err:
            unusable.append(str(err))


if not any(type(finder).__name__ == "_Recovery" for finder in sys.meta_path):
    sys.meta_path.append(_Recovery())
