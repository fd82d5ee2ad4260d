"""The story of ``kernelize``: layers, mapping, kernels, fit, and then the forwards, all or none.

:func:`kernelize` reads from top to bottom as that path. Nothing of the model is touched
before every layer is decided, so an error leaves it as it was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from kernel_spec.errors import Fault, IntegrityError, UsageError, WrongTypeError
from kernels import log
from kernels.errors import KernelizeError, SettingsError, TrustError
from kernels.layer import decision
from kernels.layer.binding import Bound, bind, has_foreign_forward, make_bound, unbind
from kernels.layer.contract import (
    find_layer_faults,
    find_missing_attributes,
    find_passed_by,
    find_signature_faults,
)
from kernels.layer.device import Target, find_target
from kernels.layer.extensible import (
    ExtensibleLayer,
    find_extensible_layers,
    require_module,
    why_excluded,
)
from kernels.layer.loaded import LoadedLayer, describe_layer
from kernels.layer.mapping import Miss, Table, current_table, find_kernel
from kernels.layer.mode import KernelizeFallback, Mode, describe_mode, modes_serving
from kernels.layer.repository import Repository
from kernels.layer.selection import find_selection
from kernels.settings import Settings, read_settings

if TYPE_CHECKING:
    import torch

Select = Literal["mapped", "measured"]

# What must not be passed over in silence, whatever the caller allows.
_NEVER_FALL_BACK = (IntegrityError, SettingsError, TrustError, UsageError)


@dataclass(frozen=True, kw_only=True)
class _Wish:
    """What the caller asks for."""

    mode: Mode
    target: Target
    fallback: KernelizeFallback
    select: Select
    table: Table
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class _Decision:
    """What a layer gets: a forward, or its own and why."""

    layer: ExtensibleLayer
    bound: Bound | None = None
    kernel: str | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class _Obstacle:
    """Why a layer cannot have its kernel, the case of fallback that this is, and what was raised."""

    case: KernelizeFallback
    reasons: tuple[str, ...]
    kernel: str | None = None
    failure: Exception | None = None


@dataclass
class _Plan:
    """The decisions so far, everything that is wrong, what was raised, and each kernel's layer once."""

    decisions: list[_Decision] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    # By identity: a repository that somebody else wrote need not be hashable.
    loaded: dict[int, LoadedLayer | Exception] = field(default_factory=dict)


def kernelize(
    model: Any,
    *,
    mode: Mode,
    device: str | torch.device | None = None,
    use_fallback: bool | KernelizeFallback = True,
    strict: bool = False,
    select: Select = "mapped",
) -> Any:
    """Let the extensible layers of a model run the kernels that are mapped to them.

    The model is changed in place and can be kernelized again, for another mode or another
    mapping; :func:`unkernelize` undoes it. :func:`report` says what came of it.

    Args:
        model: a ``torch.nn.Module``.
        mode: ``Mode.INFERENCE`` or ``Mode.TRAINING``, with ``| Mode.TORCH_COMPILE`` where the
            model will be compiled.
        device: what the model runs on; taken from its first parameter where it is None.
        use_fallback: when layers may keep their own forward: True is
            ``KernelizeFallback.DEFAULT``, False is ``NONE``.
        strict: raise where not a single layer gets a kernel.
        select: ``"mapped"`` takes every kernel that is mapped, ``"measured"`` only where it is at
            least as fast as the original on the shapes that the layer is called with.

    Returns:
        The model itself.

    Raises:
        KernelizeError: with every layer that cannot take its kernel, or that has none and must;
            the model is as it was. It is also a ValueError and a TypeError.
        TypeError: an argument of a wrong type.
        ValueError: a wrong argument; a publisher who is not trusted; bytes that are not those
            promised.
        FileNotFoundError, and others of :func:`kernels.get_kernel`: kernels cannot be loaded, and
            ``use_fallback`` does not include ``CANNOT_LOAD``.
    """
    require_module(model)
    if not isinstance(strict, bool):
        raise WrongTypeError("strict", "True or False", strict)
    wish = _read_wish(model, mode, device, use_fallback, select)
    layers = find_extensible_layers(model)
    plan = _Plan()
    for layer in layers:
        _decide(layer, wish, plan)
    _raise_faults(plan)
    if strict and not any(each.bound for each in plan.decisions):
        raise _nothing_replaced(model, plan)
    for each in plan.decisions:
        _apply(each, wish)
    _tell(plan)
    return model


def unkernelize(model: Any) -> Any:
    """Give every layer of a model its own forward back; return the model.

    Functions that kernels stand for are shared by all models, so they get theirs back for all.
    """
    for layer in find_extensible_layers(model):
        unbind(layer.module)
        decision.forget(layer.module)
    return model


def _read_wish(
    model: Any,
    mode: Mode,
    device: str | torch.device | None,
    use_fallback: bool | KernelizeFallback,
    select: Select,
) -> _Wish:
    modes_serving(mode)
    if select not in ("mapped", "measured"):
        if not isinstance(select, str):
            raise WrongTypeError("select", "'mapped' or 'measured'", select)
        raise UsageError(f"select: expected 'mapped' or 'measured', found {select!r}.")
    if isinstance(use_fallback, bool):
        fallback = KernelizeFallback.DEFAULT if use_fallback else KernelizeFallback.NONE
    elif isinstance(use_fallback, KernelizeFallback):
        fallback = use_fallback
    else:
        raise WrongTypeError("use_fallback", "a KernelizeFallback, True or False", use_fallback)
    return _Wish(
        mode=mode,
        target=find_target(model, device),
        fallback=fallback,
        select=select,
        table=current_table(),
        settings=read_settings(),
    )


def _decide(layer: ExtensibleLayer, wish: _Wish, plan: _Plan) -> None:
    """Add what a layer gets to the plan, or what is wrong."""
    if (reason := _why_left_alone(layer.module, wish.settings)) is not None:
        plan.decisions.append(_Decision(layer=layer, reason=reason))
        return
    found = _find_layer(layer, wish, plan)
    if isinstance(found, LoadedLayer):
        bound = _make_bound(found, layer.module, wish)
        plan.decisions.append(_Decision(layer=layer, bound=bound, kernel=found.repository))
    elif found.case in wish.fallback:
        reason = found.reasons[0]
        plan.decisions.append(_Decision(layer=layer, kernel=found.kernel, reason=reason))
    else:
        plan.faults += [_fault(layer, reason) for reason in found.reasons]
        if found.failure is not None:
            plan.failures.append(found.failure)


def _why_left_alone(module: Any, settings: Settings) -> str | None:
    if not settings.kernel_mapping:
        return "DISABLE_KERNEL_MAPPING is set"
    if (reason := why_excluded(module)) is not None:
        return reason
    return "something else has replaced its forward" if has_foreign_forward(module) else None


def _find_layer(layer: ExtensibleLayer, wish: _Wish, plan: _Plan) -> LoadedLayer | _Obstacle:
    """Find, load and judge the kernel of a layer."""
    found = find_kernel(wish.table, layer.name, wish.target, wish.mode)
    if isinstance(found, Miss):
        return _Obstacle(case=found.case, reasons=(found.reason,))
    name = str(found.repository)
    loaded = _load(found.repository, plan)
    if isinstance(loaded, Exception):
        return _Obstacle(
            case=KernelizeFallback.CANNOT_LOAD,
            reasons=(f"{name} cannot be loaded: {loaded}",),
            kernel=name,
            failure=loaded,
        )
    if faults := _find_faults(loaded, layer, found.mode & wish.mode):
        reasons = tuple(f"{name} does not fit: {fault}" for fault in faults)
        return _Obstacle(case=KernelizeFallback.CANNOT_LOAD, kernel=name, reasons=reasons)
    if lacking := _missing_abilities(loaded, wish.mode):
        case = KernelizeFallback.NO_COMPATIBLE_MODE
        return _Obstacle(case=case, kernel=name, reasons=(f"{name} {lacking}",))
    return loaded


def _make_bound(loaded: LoadedLayer, module: Any, wish: _Wish) -> Bound:
    selection = None
    if wish.select == "measured":
        selection = find_selection(
            loaded, module, mode=wish.mode, target=wish.target, state=wish.settings.state
        )
    return make_bound(loaded, type(module).forward, selection)


def _load(repository: Repository, plan: _Plan) -> LoadedLayer | Exception:
    """Load a kernel's layer, once for all layers that it is mapped to."""
    known = plan.loaded.get(id(repository))
    if known is None:
        try:
            cls = repository.load()
            known = (
                describe_layer(cls, str(repository))
                if isinstance(cls, type)
                else TypeError(f"load() returned {cls!r}, not a class")
            )
        except _NEVER_FALL_BACK:
            raise
        except Exception as err:  # noqa: BLE001 - the kernel's own code runs here
            known = err
        plan.loaded[id(repository)] = known
    return known


def _find_faults(loaded: LoadedLayer, layer: ExtensibleLayer, promised: Mode) -> list[str]:
    """Say why a kernel's layer cannot stand for a model's, or not be what it was registered for."""
    faults = list(find_layer_faults(loaded.cls))
    if faults:
        return faults
    forward, original = loaded.cls.forward, type(layer.module).forward
    faults += find_signature_faults(forward, original)
    if missing := find_missing_attributes(loaded.cls, layer.module):
        names = ", ".join(missing)
        faults.append(f"it needs {names} of the layer, and {type(layer.module).__name__} has none")
    faults += find_passed_by(loaded.cls, layer.module)
    if lacking := _missing_abilities(loaded, promised):
        faults.append(f"it is mapped for {describe_mode(promised)}, but it {lacking}")
    return faults


def _missing_abilities(loaded: LoadedLayer, mode: Mode) -> str:
    missing = []
    if Mode.TRAINING in mode and not loaded.has_backward:
        missing.append("has no backward")
    if Mode.TORCH_COMPILE in mode and not loaded.can_torch_compile:
        missing.append("cannot be compiled by torch.compile")
    return " and ".join(missing)


def _raise_faults(plan: _Plan) -> None:
    if not plan.faults:
        return
    headline = "The model was not kernelized:"
    if len(plan.failures) == len(plan.faults):
        # Kernels that cannot be loaded, and nothing else: callers of get_kernel know that error.
        cause = plan.failures[0]
        cause.add_note("\n".join([headline, *(f"  {_summary(fault)}" for fault in plan.faults)]))
        raise cause
    error = KernelizeError(tuple(plan.faults), headline)
    raise error from (plan.failures[0] if plan.failures else None)


def _summary(fault: Fault) -> str:
    return str(fault).partition("\n")[0]


def _nothing_replaced(model: Any, plan: _Plan) -> KernelizeError:
    if not plan.decisions:
        return KernelizeError(
            (),
            f"No layer of {type(model).__name__} gets a kernel: none is extensible. Mark its layers "
            "with use_kernel_forward_from_hub, or a class of somebody else's with "
            "replace_kernel_forward_from_hub.",
        )
    faults = tuple(_fault(each.layer, each.reason) for each in plan.decisions)
    return KernelizeError(faults, f"0 of {len(faults)} layers get a kernel (strict=True):")


def _apply(each: _Decision, wish: _Wish) -> None:
    module = each.layer.module
    if each.bound is None:
        unbind(module)
    else:
        bind(module, each.bound)
    decision.write(
        module,
        runs="kernel" if each.bound else "original",
        mode=describe_mode(wish.mode),
        device=str(wish.target),
        reason=each.reason,
        kernel=each.kernel,
        commit=each.bound.layer.commit if each.bound else None,
    )


def _tell(plan: _Plan) -> None:
    """Log one line for the model, and one for each kernel that was mapped and is not used."""
    replaced = sum(1 for each in plan.decisions if each.bound)
    log.logger().info("%d of %d layers get a kernel.", replaced, len(plan.decisions))
    passed_over = Counter(
        each.reason for each in plan.decisions if each.bound is None and each.kernel is not None
    )
    for reason, count in passed_over.items():
        if log.is_new("kernelize", reason):
            who = "1 layer keeps its" if count == 1 else f"{count} layers keep their"
            log.logger().warning("%s own forward: %s", who, reason)


def _fault(layer: ExtensibleLayer, message: str) -> Fault:
    where = layer.path or type(layer.module).__name__
    return Fault(kind="layer", where=where, message=message)
