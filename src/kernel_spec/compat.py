"""Which variants fit a system, best first, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_spec.backend import BackendKind
from kernel_spec.system import System
from kernel_spec.variant import Variant


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a variant does not fit.

    Attributes:
        kind: ``unknown-form``, ``free-threaded``, ``cpu``, ``os``, ``framework-version``,
            ``abi``, ``backend``, ``backend-version`` or ``arch``.
        text: what the variant needs and what the system has.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Accepted:
    """A variant that fits."""

    name: str
    variant: Variant


@dataclass(frozen=True, slots=True)
class Rejected:
    """A variant that does not fit, with every reason."""

    name: str
    variant: Variant | None
    reasons: tuple[Reason, ...]

    @property
    def reason(self) -> str:
        """Every reason in one line."""
        return "; ".join(reason.text for reason in self.reasons)


Decision = Accepted | Rejected


def decide(
    system: System, names: Iterable[str], *, backend: BackendKind | None = None
) -> tuple[Decision, ...]:
    """Judge every name: the fitting ones first, best first, then the others by name.

    The order is total and does not depend on the order of ``names``: stable ABI (highest
    version, then highest backend version), full torch ABI (untagged before tagged, then
    highest backend version), TVM FFI, noarch of the backend, universal.

    Args:
        system: what the machine offers.
        names: the names of the directories under ``build/``.
        backend: judge as if the system ran on this backend; ``cpu`` is possible everywhere.
    """
    raise NotImplementedError


def choose(
    system: System, names: Iterable[str], *, backend: BackendKind | None = None
) -> Accepted | None:
    """Return the best variant that fits, or None."""
    raise NotImplementedError


def fits_device(kind: BackendKind, archs: Iterable[str], device_arch: str) -> bool | None:
    """Say whether code for ``archs`` runs on a device; None where nothing can be compared.

    CUDA: ``9.0a`` is exact; ``10.0f`` and plain ``8.0`` run on the same major version at the
    same or a higher minor; plain with ``+PTX`` runs on everything newer. ROCm: names are equal
    up to a colon (``gfx942:sramecc+``). Source: CUDA C++ Programming Guide, "Compute
    Capabilities"; LLVM AMDGPU usage, "Target ID".
    """
    raise NotImplementedError
