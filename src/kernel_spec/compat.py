"""Which variants fit a system, best first, and why the others do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, assert_never

from kernel_spec.backend import Backend, BackendKind
from kernel_spec.errors import VariantNameError
from kernel_spec.framework import Framework, Torch, TorchStableAbi, TvmFfi
from kernel_spec.system import System, TorchBuild
from kernel_spec.variant import (
    ArchVariant,
    NoarchVariant,
    UnknownVariant,
    Variant,
    parse_variant,
)
from kernel_spec.version import MajorMinor

# The first CPython whose free-threaded build has a stable ABI.
_FREE_THREADED_ABI = MajorMinor(3, 15)
# Metal libraries are built for the shading language of this macOS.
_METAL_MACOS = MajorMinor(26, 0)
_CUDA_ARCH = re.compile(r"([0-9]+)\.([0-9]+)([af]?)(\+PTX)?", re.ASCII)
_NO_VERSION = MajorMinor(0, 0)


class Reason(NamedTuple):
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


class Accepted(NamedTuple):
    """A variant that fits."""

    name: str
    variant: Variant


class Rejected(NamedTuple):
    """A variant that does not fit, with every reason."""

    name: str
    variant: Variant | UnknownVariant
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
        backend: judge as if the system ran on this backend; ``cpu`` is possible everywhere, and
            of any other than the system's own no version is known.
    """
    offered = _judged_backend(system, backend)
    # What a reason calls the backend that does not fit.
    found = f"this system has {offered}"
    if offered is not system.backend:
        found = f"backend={offered.kind.value!r} was asked for (this system has {system.backend})"
    accepted: list[Accepted] = []
    rejected: list[Rejected] = []
    for name in sorted(set(names)):
        try:
            variant = parse_variant(name)
        except VariantNameError as err:
            rejected.append(
                Rejected(name, UnknownVariant(name), (Reason("unknown-form", str(err)),))
            )
            continue
        reasons = tuple(_reasons(system, offered, found, variant))
        if reasons:
            rejected.append(Rejected(name, variant, reasons))
        else:
            accepted.append(Accepted(name, variant))
    accepted.sort(key=_rank)
    return (*accepted, *rejected)


def _judged_backend(system: System, kind: BackendKind | None) -> Backend:
    return system.backend if kind is None or kind is system.backend.kind else Backend(kind)


def _rank(accepted: Accepted) -> tuple[int, ...]:
    """Return what orders fitting variants; the caller's order by name decides between equals."""
    match accepted.variant:
        case NoarchVariant(backend=None):
            return (4,)
        case NoarchVariant():
            return (3,)
        case ArchVariant(framework=framework, backend=backend):
            toolkit = backend.version or _NO_VERSION
            newest_toolkit = (-toolkit.major, -toolkit.minor)
            newest = (-framework.version.major, -framework.version.minor)
            match framework:
                case TorchStableAbi():
                    return (0, *newest, *newest_toolkit)
                case Torch():
                    return (1, int(framework.cxx11 is not None), *newest_toolkit)
                case TvmFfi():
                    return (2, *newest, *newest_toolkit)
                case _:
                    assert_never(framework)
        case _:
            assert_never(accepted.variant)


def _reasons(system: System, offered: Backend, found: str, variant: Variant) -> Iterator[Reason]:
    if isinstance(variant, NoarchVariant):
        if variant.backend is not None and variant.backend is not offered.kind:
            yield Reason("backend", f"runs on {variant.backend}, {found}")
        return
    if system.free_threaded and system.python < _FREE_THREADED_ABI:
        yield Reason(
            "free-threaded",
            f"holds machine code, which free-threaded Python loads from {_FREE_THREADED_ABI} "
            f"on, this system has free-threaded Python {system.python}",
        )
    if variant.cpu != system.cpu:
        yield Reason("cpu", f"built for {variant.cpu}, this system has {system.cpu}")
    yield from _os_reasons(system, variant)
    yield from _framework_reasons(system, variant.framework)
    yield from _backend_reasons(variant.backend, offered, found)


def _os_reasons(system: System, variant: ArchVariant) -> Iterator[Reason]:
    if variant.os != system.os:
        yield Reason("os", f"built for {variant.os}, this system runs {system.os}")
    elif variant.backend.kind is BackendKind.METAL and (
        system.macos is None or system.macos < _METAL_MACOS
    ):
        found = "an unknown version of macOS" if system.macos is None else f"macOS {system.macos}"
        yield Reason("os", f"built for macOS {_METAL_MACOS} or later, this system has {found}")


def _framework_reasons(system: System, framework: Framework) -> Iterator[Reason]:
    match framework:
        case Torch():
            yield from _torch_reasons(system, framework)
        case TorchStableAbi(version=version):
            if system.torch is None or not _has_stable_abi(system.torch, version):
                yield Reason(
                    "framework-version",
                    f"built for torch {version} or later, this system has "
                    f"{_torch_text(system.torch)}",
                )
        case TvmFfi(version=version):
            if system.tvm_ffi != version:
                found = (
                    "no apache-tvm-ffi" if system.tvm_ffi is None else f"tvm-ffi {system.tvm_ffi}"
                )
                yield Reason(
                    "framework-version", f"built for tvm-ffi {version}, this system has {found}"
                )
        case _:
            assert_never(framework)


def _torch_reasons(system: System, framework: Torch) -> Iterator[Reason]:
    torch = system.torch
    if torch is None or torch.prerelease or torch.release != framework.version:
        yield Reason(
            "framework-version",
            f"built for torch {framework.version}, this system has {_torch_text(torch)}",
        )
    # Only Linux has had torch with both string layouts.
    if (
        torch is not None
        and system.os == "linux"
        and framework.cxx11 is not None
        and framework.cxx11 is not torch.cxx11_abi
    ):
        built, found = ("C++11", "C++98") if framework.cxx11 else ("C++98", "C++11")
        yield Reason(
            "abi", f"built for the {built} string layout, this system's torch has the {found} one"
        )


def _has_stable_abi(torch: TorchBuild, version: MajorMinor) -> bool:
    """Say whether a torch has the stable ABI of a release.

    A pre-release may lack functions that its release adds, so it has that of earlier ones only.
    """
    return version < torch.release or (version == torch.release and not torch.prerelease)


def _torch_text(torch: TorchBuild | None) -> str:
    if torch is None:
        return "no torch"
    return f"torch {torch.version}" + (", a pre-release" if torch.prerelease else "")


def _backend_reasons(built: Backend, offered: Backend, found: str) -> Iterator[Reason]:
    if built.kind is not offered.kind:
        yield Reason("backend", f"built for {built}, {found}")
    elif not _fits_toolkit(built, offered):
        if offered.version is None:
            found += f", that is, an unknown version of {offered.kind}"
        yield Reason("backend-version", f"built for {built}, {found}")


def _fits_toolkit(built: Backend, offered: Backend) -> bool:
    """CUDA runs what an earlier minor version built; the others want the same version."""
    if built.kind is not BackendKind.CUDA or built.version is None or offered.version is None:
        return built.version == offered.version
    return (
        built.version.major == offered.version.major
        and built.version.minor <= offered.version.minor
    )


def choose(
    system: System, names: Iterable[str], *, backend: BackendKind | None = None
) -> Accepted | None:
    """Return the best variant that fits, or None."""
    match decide(system, names, backend=backend):
        case (Accepted() as best, *_):
            return best
        case _:
            return None


def fits_device(kind: BackendKind, archs: Iterable[str], device_arch: str | None) -> bool | None:
    """Say whether code for ``archs`` runs on a device; None where nothing can be compared.

    CUDA: ``9.0a`` is exact; ``10.0f`` and plain ``8.0`` run on the same major version at the
    same or a higher minor; plain with ``+PTX`` runs on everything newer. ROCm: names are equal
    up to a colon (``gfx942:sramecc+``). Source: CUDA C++ Programming Guide, "Compute
    Capabilities"; LLVM AMDGPU usage, "Target ID".
    """
    if device_arch is None:
        return None
    match kind:
        case BackendKind.CUDA:
            return _fits_cuda_device(archs, device_arch)
        case BackendKind.ROCM:
            names = {arch.partition(":")[0] for arch in archs}
            return device_arch.partition(":")[0] in names if names else None
        case _:
            return None


def _fits_cuda_device(archs: Iterable[str], device_arch: str) -> bool | None:
    device = _CUDA_ARCH.fullmatch(device_arch)
    built = [match for arch in archs if (match := _CUDA_ARCH.fullmatch(arch)) is not None]
    if device is None or not built:
        return None
    capability = MajorMinor(int(device[1]), int(device[2]))
    return any(
        _runs_on(MajorMinor(int(match[1]), int(match[2])), match[3], match[4], capability)
        for match in built
    )


def _runs_on(built: MajorMinor, suffix: str, ptx: str | None, device: MajorMinor) -> bool:
    if suffix == "a":
        return built == device
    if suffix == "" and ptx is not None:
        return built <= device
    return built.major == device.major and built.minor <= device.minor
