"""Devices of a mapping and of a model: their type and, for GPUs, their capability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_spec.errors import UsageError, WrongTypeError

if TYPE_CHECKING:
    import torch

DEVICE_TYPES = ("cpu", "cuda", "mps", "neuron", "npu", "rocm", "tpu", "xpu")


@dataclass(frozen=True)
class _CapabilityRange:
    min_capability: int
    max_capability: int

    def __post_init__(self) -> None:
        for name in ("min_capability", "max_capability"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise WrongTypeError(name, "a number such as 90 for capability 9.0", value)
            if value < 0:
                raise UsageError(
                    f"{type(self).__name__}: {name}: expected a number such as 90 for "
                    f"capability 9.0, found {value!r}."
                )
        if self.min_capability > self.max_capability:
            raise UsageError(
                f"{type(self).__name__}: min_capability ({self.min_capability}) is above "
                f"max_capability ({self.max_capability})."
            )

    def __contains__(self, capability: int) -> bool:
        return self.min_capability <= capability <= self.max_capability

    def __str__(self) -> str:
        return f"{self.min_capability} to {self.max_capability}"


@dataclass(frozen=True)
class CUDAProperties(_CapabilityRange):
    """The CUDA capabilities that a kernel is for, both ends included: 90 is capability 9.0."""


@dataclass(frozen=True)
class ROCMProperties(_CapabilityRange):
    """The capabilities of AMD GPUs that a kernel is for, both ends included: 94 is gfx94x."""


_PROPERTIES: dict[str, type[_CapabilityRange]] = {"cuda": CUDAProperties, "rocm": ROCMProperties}


@dataclass(frozen=True)
class Device:
    """A device in a kernel mapping.

    Attributes:
        type: one of ``cpu cuda mps neuron npu rocm tpu xpu``.
        properties: the capabilities, for ``cuda`` and ``rocm``; None is every device of the type.

    Raises:
        UsageError: another type, or properties of another type; it is also a ValueError.
    """

    type: str
    properties: CUDAProperties | ROCMProperties | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str):
            raise WrongTypeError("type", f"one of {', '.join(DEVICE_TYPES)}", self.type)
        require_device_type(self.type)
        if not isinstance(self.properties, _CapabilityRange | None):
            raise WrongTypeError("properties", "CUDAProperties or ROCMProperties", self.properties)
        wanted = _PROPERTIES.get(self.type)
        if self.properties is not None and type(self.properties) is not wanted:
            expected = f"expected {wanted.__name__}" if wanted else "it takes none"
            raise UsageError(
                f"Device({self.type!r}): properties: {expected}, "
                f"found {type(self.properties).__name__}."
            )

    def __str__(self) -> str:
        return self.type if self.properties is None else f"{self.type} {self.properties}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The device that a model is kernelized for; None is what is not known of it.

    Attributes:
        type: as mappings spell it.
        capability: 90 for 9.0.
        name: what its maker calls it.
    """

    type: str
    capability: int | None = None
    name: str | None = None

    def __str__(self) -> str:
        return self.type if self.capability is None else f"{self.type} {self.capability}"


def require_device_type(word: object) -> str:
    """Return the word if it is a type of device.

    Raises:
        UsageError: it is not; the message lists those there are.
    """
    if isinstance(word, str) and word in DEVICE_TYPES:
        return word
    if not isinstance(word, str):
        raise WrongTypeError("device", f"one of {', '.join(DEVICE_TYPES)}", word)
    raise UsageError(
        f"device: expected one of {', '.join(DEVICE_TYPES)}, found {word!r}: "
        "unsupported device type."
    )


def find_target(model: Any, device: str | torch.device | None) -> Target:
    """Say what device a model is kernelized for.

    Args:
        model: asked for its first parameter or buffer where ``device`` is None.
        device: a type as mappings spell it, or a device of torch. A GPU that torch calls
            ``cuda`` counts as ``rocm`` where torch is built for ROCm; the word "cuda" does not.

    Raises:
        WrongTypeError: neither a text nor a device.
        UsageError: an unknown type, or a model without parameters and no device.
    """
    if isinstance(device, str):
        word, _, index = device.partition(":")
        require_device_type(word if index.isdigit() else device)
        return _describe(word, int(index) if index else None)
    if device is None:
        from itertools import chain

        tensor = next(chain(model.parameters(), model.buffers()), None)
        if tensor is None:
            raise UsageError(
                "device: the model has neither parameters nor buffers that would tell; "
                "give one, such as kernelize(model, mode=mode, device='cpu')."
            )
        device = tensor.device
    import torch

    if not isinstance(device, torch.device):
        raise WrongTypeError("device", "a type of device or a torch.device", device)
    where: Any = device
    word = _type_of(where)
    if word == "meta":
        raise UsageError(
            "device: the model is on torch's meta device; say where it will run, such as "
            "kernelize(model, mode=mode, device='cuda')."
        )
    return _describe(word, where.index)


def _type_of(device: torch.device) -> str:
    import torch

    word = str(device.type)
    return "rocm" if word == "cuda" and torch.version.hip else word


def _describe(word: str, index: int | None) -> Target:
    if word not in _PROPERTIES:
        return Target(type=word)
    import torch

    if not torch.cuda.is_available():
        return Target(type=word)
    major, minor = torch.cuda.get_device_capability(index)
    name = str(torch.cuda.get_device_name(index))
    return Target(type=word, capability=int(major) * 10 + int(minor), name=name)
