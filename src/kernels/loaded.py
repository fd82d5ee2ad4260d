"""What a load gives: the kernels of this process, where they came from, and how long each step took."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kernel_spec.metadata import Metadata
    from kernels.variant_dir import VariantDir


class RepoInfo(NamedTuple):
    """Where a loaded kernel came from: the repository's id and the commit."""

    repo_id: str
    revision: str


class LoadedKernel(NamedTuple):
    """A kernel of this process; ``repo_info`` is None where it came from a path."""

    metadata: Metadata
    module: ModuleType
    repo_info: RepoInfo | None


class Phase(NamedTuple):
    """One step of a load and how many seconds it took."""

    name: str
    seconds: float


class LoadTrace(NamedTuple):
    """What a load did.

    Attributes:
        kernel: the loaded kernel.
        path: the directory that it was imported from.
        source: the URL of the hub, or the path that stood in for it.
        downloaded: whether the variant was not in the cache before.
        phases: the steps in order: ``prepare``, ``locate``, ``choose``, ``trust``, ``install``,
            ``import``, and ``build`` where it was built here; a kernel from a path has no ``locate``, ``trust`` and ``install``.
    """

    kernel: LoadedKernel
    path: Path
    source: str
    downloaded: bool
    phases: tuple[Phase, ...]

    @property
    def module(self) -> ModuleType:
        """The kernel's module."""
        return self.kernel.module

    @property
    def seconds(self) -> float:
        """How long the whole load took."""
        return sum(phase.seconds for phase in self.phases)


class Clock:
    """Measures the steps of a story."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.phases: list[Phase] = []

    def lap(self, name: str) -> None:
        """End a step."""
        now = time.perf_counter()
        self.phases.append(Phase(name, now - self._last))
        self._last = now


_kernels: dict[str, LoadedKernel] = {}


def get_loaded_kernels() -> list[LoadedKernel]:
    """List the kernels that this process has loaded, in the order of their loading."""
    # Not those whose import failed while another thread waited for them.
    return [k for name, k in _kernels.items() if sys.modules.get(name) is k.module]


def import_variant(
    variant: VariantDir,
    repo_info: RepoInfo | None,
    dependencies: Mapping[str, ModuleType] | None = None,
) -> LoadedKernel:
    """Import a verified variant and list it among the kernels of this process.

    Args:
        variant: what to import.
        repo_info: where it came from.
        dependencies: the kernels that it needs, by the id of their repository.

    Raises:
        As :func:`kernels.importer.load`; a Python package that it needs is missing.
        SharedSymbolError: its libraries and a loaded one define the same variable, of two sizes.
    """
    from kernels import importer, log
    from kernels.linkage.verdict import holds_libraries
    from kernels.missing_names import name_kernel

    if variant.metadata.python_depends or variant.metadata.python_requires:
        from kernels.python_depends import require_packages

        require_packages(variant)
    provenance = variant.metadata.provenance
    if provenance is not None and provenance.kernel_dirty and log.is_new("dirty", variant.digest):
        log.logger().warning(
            "%s (%s) was built from sources that were not committed",
            variant.metadata.name,
            variant.path,
        )
    if holds_libraries(variant.sha256):
        _tell_shared(variant)
    module = importer.load(variant, dependencies)
    if repo_info is not None:
        version, commit = variant.metadata.version, repo_info.revision[:12]
        title = f"{repo_info.repo_id} (version {version}, commit {commit}, {variant.path.name})"
        name_kernel(module.__name__, title)
    return _kernels.setdefault(module.__name__, LoadedKernel(variant.metadata, module, repo_info))


def _tell_shared(variant: VariantDir) -> None:
    """Tell of variables that a variant would share with a kernel that is loaded.

    Raises:
        SharedSymbolError: a variable is of another size there.
    """
    from kernels import log
    from kernels.errors import SharedSymbolError
    from kernels.fit import read_verdict
    from kernels.linkage.names import describe_symbol
    from kernels.linkage.shared import claim
    from kernels.system import detect

    shared = read_verdict(variant, detect()).shared
    for clash in claim(variant.path, variant.sha256, shared) if shared else ():
        if clash.odd:
            raise SharedSymbolError(
                map(describe_symbol, clash.odd), loaded=clash.loaded, refused=clash.library
            )
        if log.is_new("shared", f"{clash.loaded} {clash.library}"):
            names = [describe_symbol(name) for name in clash.names]
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            log.logger().warning(
                "%s and %s, which is loaded, share a variable of one name (%s%s), so each sees what the other "
                "writes there. Use them in two processes, or build them anew with -fno-gnu-unique, as "
                "kernel-builder does.",
                clash.library,
                clash.loaded,
                ", ".join(names[:3]),
                more,
            )
