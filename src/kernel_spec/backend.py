"""Backends: what executes a kernel (cpu, cuda, rocm, ...), and how names spell them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kernel_spec.errors import VariantNameError
from kernel_spec.version import MajorMinor


class BackendKind(StrEnum):
    """The backends that the format knows."""

    CANN = "cann"
    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    NEURON = "neuron"
    ROCM = "rocm"
    TPU = "tpu"
    XPU = "xpu"


# Arch variants spell these with a version: cu130, rocm72, xpu20253, cann83.
VERSIONED_PREFIXES: dict[str, BackendKind] = {
    "cu": BackendKind.CUDA,
    "rocm": BackendKind.ROCM,
    "xpu": BackendKind.XPU,
    "cann": BackendKind.CANN,
}
UNVERSIONED = frozenset({BackendKind.CPU, BackendKind.METAL, BackendKind.NEURON, BackendKind.TPU})

# Noarch variants spell backends by name; Ascend's is called npu there.
NOARCH_NAMES: dict[str, BackendKind] = {
    **{kind.value: kind for kind in BackendKind if kind is not BackendKind.CANN},
    "npu": BackendKind.CANN,
}


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend and, where it has one, the version of its toolkit."""

    kind: BackendKind
    version: MajorMinor | None = None

    def __str__(self) -> str:
        return self.kind.value if self.version is None else f"{self.kind.value} {self.version}"


def parse_backend(token: str) -> Backend:
    """Read the backend token of an arch variant (``cpu``, ``cu130``, ``rocm72``).

    The last digit is the minor version and the rest the major one. A name whose
    digits can be read as two versions (``rocm710``: 7.10 or 71.0) is refused.

    Raises:
        VariantNameError: ``bad-backend``, ``unknown-backend`` or ``ambiguous-backend-version``.
    """
    raise NotImplementedError


def format_backend(backend: Backend) -> str:
    """Write a backend as the token of an arch variant.

    Raises:
        VariantNameError: the version has no unambiguous name, such as ROCm 7.10.
    """
    raise NotImplementedError
