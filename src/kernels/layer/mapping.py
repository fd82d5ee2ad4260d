"""Which kernel stands for which layer: registered for the process, or for the length of a ``with``.

A mapping is ``{layer name: {device: kernel, or {mode: kernel}}}``. A later entry replaces an
earlier one of the same layer and device whole, with all its modes. What is registered is never
changed in place: each registration makes a new table, so that a reader in another thread sees one
or the other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ContextDecorator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from kernel_spec.errors import Fault, WrongTypeError
from kernels.errors import MappingError
from kernels.forking import Renewed
from kernels.layer.device import DEVICE_TYPES, Device, Target
from kernels.layer.mode import KernelizeFallback, Mode, describe_mode, modes_serving
from kernels.layer.repository import Repository

KernelMapping = Mapping[str, Mapping[Device | str, Repository | Mapping[Mode, Repository]]]
Modes = Mapping[Mode, Repository]
Table = Mapping[str, Mapping[Device, Modes]]

_state = Renewed(threading.Lock)
# What every thread sees, and what a `with use_kernel_mapping` shows its own context instead.
_registered: Table = {}
_scoped: ContextVar[_Scope | None] = ContextVar("kernel_mapping", default=None)


@dataclass(frozen=True, kw_only=True)
class Match:
    """The kernel that is registered for a layer, and the mode that it was registered for."""

    repository: Repository
    mode: Mode


@dataclass(frozen=True, kw_only=True)
class Miss:
    """Why no kernel is registered: the case of :class:`KernelizeFallback`, in words too."""

    case: KernelizeFallback
    reason: str


def register_kernel_mapping(mapping: KernelMapping, inherit_mapping: bool = True) -> None:
    """Register kernels for layers, for the whole process.

    Inside ``with use_kernel_mapping(...)`` it is that mapping which is extended, until its end.

    Args:
        mapping: ``{layer name: {device: kernel, or {mode: kernel}}}``; a device is a type such as
            ``"cuda"`` or a :class:`Device`; a kernel without a mode serves every mode.
        inherit_mapping: False forgets what was registered before.

    Raises:
        MappingError: with every fault of the mapping; it is also a ValueError.
        WrongTypeError: it is no dictionary; it is also a TypeError.
    """
    global _registered  # noqa: PLW0603 - the one table of the process
    entries = _read(mapping)
    _require_flag(inherit_mapping)
    scope = _scoped.get()
    if scope is not None:
        table = _merge(scope.table if inherit_mapping else {}, entries)
        _scoped.set(replace(scope, table=table))
        return
    with _state.lock:
        _registered = _merge(_registered if inherit_mapping else {}, entries)


def use_kernel_mapping(
    mapping: KernelMapping, *, inherit_mapping: bool = True
) -> AbstractContextManager[None]:
    """Use a mapping in a ``with`` block of this thread or task, over what is registered.

    Args:
        mapping: as for :func:`register_kernel_mapping`.
        inherit_mapping: False uses this mapping alone.

    Returns:
        What ``with`` takes, as often as you like.

    Raises:
        MappingError: with every fault of the mapping; it is also a ValueError.
        WrongTypeError: it is no dictionary; it is also a TypeError.
    """
    _require_flag(inherit_mapping)
    return _Block(entries=_read(mapping), inherit=inherit_mapping)


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """What a ``with`` block shows, and what is around it."""

    table: Table
    outer: _Scope | None


@dataclass(frozen=True, kw_only=True)
class _Block(ContextDecorator, AbstractContextManager[None]):
    entries: Table
    inherit: bool

    def __enter__(self) -> None:
        table = current_table() if self.inherit else {}
        _scoped.set(_Scope(table=_merge(table, self.entries), outer=_scoped.get()))

    def __exit__(self, *_: object) -> None:
        scope = _scoped.get()
        _scoped.set(scope.outer if scope else None)


def current_table() -> Table:
    """Return what :func:`kernels.kernelize` would look at now."""
    scope = _scoped.get()
    return _registered if scope is None else scope.table


def find_kernel(table: Table, layer_name: str, target: Target, mode: Mode) -> Match | Miss:
    """Find the kernel of a layer for a device and a mode.

    Among ranges of capabilities the narrowest one that holds the device's wins; of two as narrow,
    the one that begins higher.
    """
    devices = table.get(layer_name)
    if devices is None:
        return Miss(
            case=KernelizeFallback.NO_LAYER,
            reason=f"no kernel is mapped to {layer_name}",
        )
    of_type = {device: modes for device, modes in devices.items() if device.type == target.type}
    if not of_type:
        there = ", ".join(sorted({device.type for device in devices}))
        return Miss(
            case=KernelizeFallback.NO_DEVICE,
            reason=f"{layer_name} is mapped for {there}, not for {target.type}",
        )
    fitting = [device for device in of_type if _covers(device, target)]
    if not fitting:
        there = ", ".join(sorted(map(str, of_type)))
        return Miss(
            case=KernelizeFallback.NO_COMPATIBLE_PROPERTIES,
            reason=f"{layer_name} is mapped for {there}, not for {target}",
        )
    modes = of_type[min(fitting, key=_width)]
    for candidate in modes_serving(mode):
        if (repository := modes.get(candidate)) is not None:
            return Match(repository=repository, mode=candidate)
    there = ", ".join(describe_mode(each) for each in modes) or "no mode"
    return Miss(
        case=KernelizeFallback.NO_COMPATIBLE_MODE,
        reason=f"{layer_name} is mapped for {there}, not for {describe_mode(mode)}",
    )


def _covers(device: Device, target: Target) -> bool:
    if device.properties is None:
        return True
    return target.capability is not None and target.capability in device.properties


def _width(device: Device) -> tuple[float, int]:
    span = device.properties
    if span is None:
        return float("inf"), 0
    return span.max_capability - span.min_capability, -span.min_capability


def _merge(table: Table, entries: Table) -> Table:
    return {name: {**table.get(name, {}), **entries.get(name, {})} for name in {**table, **entries}}


def _require_flag(inherit_mapping: object) -> None:
    if not isinstance(inherit_mapping, bool):
        raise WrongTypeError("inherit_mapping", "True or False", inherit_mapping)


def _read(mapping: Any) -> Table:
    faults: list[Fault] = []
    table: dict[str, dict[Device, Modes]] = {}
    if not isinstance(mapping, Mapping):
        raise WrongTypeError("mapping", "a dictionary", mapping)
    for name, devices in mapping.items():
        if not isinstance(name, str):
            faults.append(_fault("", f"expected the name of a layer, found {name!r}"))
        elif not isinstance(devices, Mapping):
            what = "expected {device: kernel}, such as {'cuda': LayerRepository(...)}"
            faults.append(_fault(name, f"{what}; found {devices!r}"))
        else:
            table[name] = dict(_read_devices(name, devices, faults))
    if faults:
        raise MappingError(tuple(faults))
    return table


def _read_devices(
    name: str, devices: Mapping[Any, Any], faults: list[Fault]
) -> Iterator[tuple[Device, Modes]]:
    for key, value in devices.items():
        where = f"{name}[{str(key) if isinstance(key, Device) else repr(key)}]"
        if isinstance(key, Device):
            device = key
        elif isinstance(key, str) and key in DEVICE_TYPES:
            device = Device(key)
        else:
            types = ", ".join(DEVICE_TYPES)
            faults.append(_fault(where, f"unknown device; expected a Device or one of {types}"))
            continue
        modes = value if isinstance(value, Mapping) else {Mode.FALLBACK: value}
        known = len(faults)
        for mode, repository in modes.items():
            if not isinstance(mode, Mode) or mode is Mode._NONE or mode is Mode.TORCH_COMPILE:
                what = describe_mode(mode) if isinstance(mode, Mode) else repr(mode)
                faults.append(_fault(where, f"expected a Mode to serve, found {what}"))
            if isinstance(repository, type) or not callable(getattr(repository, "load", None)):
                what = f"expected a kernel, such as LayerRepository(...); found {repository!r}"
                faults.append(_fault(where, what))
        if len(faults) == known:
            yield device, dict(modes)


def _fault(where: str, message: str) -> Fault:
    return Fault(kind="mapping", where=where, message=message)
