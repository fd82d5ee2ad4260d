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


# The oldest major version that anybody builds for. Digits are ambiguous where they can also be
# read as one of these or later with a minor version of two digits.
_OLDEST_MAJOR: dict[BackendKind, int] = {
    BackendKind.CUDA: 9,
    BackendKind.ROCM: 4,
    BackendKind.XPU: 2000,
    BackendKind.CANN: 5,
}
_PREFIX_OF: dict[BackendKind, str] = {kind: prefix for prefix, kind in VERSIONED_PREFIXES.items()}
_UNVERSIONED_NAMES = frozenset(kind.value for kind in UNVERSIONED)
_TOKEN = re.compile(r"([a-z]+)([0-9]*)", re.ASCII)


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
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise VariantNameError(
            f"expected a backend such as cpu or cu130, found {token!r}", kind="bad-backend"
        )
    prefix, digits = match[1], match[2]
    versioned = VERSIONED_PREFIXES.get(prefix)
    if versioned is not None:
        return Backend(versioned, _parse_digits(versioned, token, digits))
    if prefix not in _UNVERSIONED_NAMES:
        known = sorted([*VERSIONED_PREFIXES, *_UNVERSIONED_NAMES])
        raise VariantNameError(
            f"unknown backend {token!r}; known are {', '.join(known)}", kind="unknown-backend"
        )
    if digits:
        raise VariantNameError(
            f"backend {prefix} has no version, found {token!r}", kind="bad-backend"
        )
    return Backend(BackendKind(prefix))


def _parse_digits(kind: BackendKind, token: str, digits: str) -> MajorMinor:
    if len(digits) < 2 or digits[0] == "0":
        raise VariantNameError(
            f"expected major and minor version in backend {token!r}, such as "
            f"{_PREFIX_OF[kind]}{_OLDEST_MAJOR[kind]}0",
            kind="bad-backend",
        )
    version = MajorMinor(int(digits[:-1]), int(digits[-1]))
    if len(digits) > 2 and digits[-2] != "0" and int(digits[:-2]) >= _OLDEST_MAJOR[kind]:
        raise VariantNameError(
            f"backend {token!r} can be read as {version} or as {digits[:-2]}.{digits[-2:]}",
            kind="ambiguous-backend-version",
        )
    return version


def format_backend(backend: Backend) -> str:
    """Write a backend as the token of an arch variant.

    Raises:
        VariantNameError: the version has no unambiguous name, such as ROCm 7.10.
    """
    prefix = _PREFIX_OF.get(backend.kind)
    if prefix is None:
        if backend.version is not None:
            raise VariantNameError(
                f"backend {backend.kind} has no version in names, found {backend.version}",
                kind="bad-backend",
            )
        return backend.kind.value
    if backend.version is None:
        raise VariantNameError(
            f"backend {backend.kind} needs a version in names", kind="bad-backend"
        )
    token = f"{prefix}{backend.version.major}{backend.version.minor}"
    if backend.version.minor > 9:
        raise VariantNameError(
            f"{backend} has no name: {token!r} would be read as another version",
            kind="ambiguous-backend-version",
        )
    parse_backend(token)
    return token
