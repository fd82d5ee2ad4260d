"""How a kernelized model will be used, and when a layer may keep its own forward."""

from __future__ import annotations

from enum import Flag, auto

from kernel_spec.errors import UsageError, WrongTypeError


class Mode(Flag):
    """What a model is kernelized for, or what a kernel is registered for.

    ``INFERENCE`` and ``TRAINING`` exclude each other; either may be combined with
    ``TORCH_COMPILE``. ``FALLBACK`` stands alone, and only in a mapping: the kernel for every
    mode that has none of its own.
    """

    _NONE = 0
    FALLBACK = auto()
    TRAINING = auto()
    INFERENCE = auto()
    TORCH_COMPILE = auto()

    def __or__(self, other: object) -> Mode:
        """Combine two modes.

        Raises:
            UsageError: a combination that means nothing; it is also a ValueError.
        """
        if not isinstance(other, Mode):
            return NotImplemented
        union = Mode(self.value | other.value)
        if Mode.INFERENCE in union and Mode.TRAINING in union:
            raise UsageError(
                "Mode.INFERENCE | Mode.TRAINING: they are mutually exclusive; kernelize again "
                "when a model goes over from one to the other."
            )
        if Mode.FALLBACK in union and union is not Mode.FALLBACK:
            raise UsageError(
                f"{describe_mode(self)} | {describe_mode(other)}: FALLBACK cannot be combined with "
                "other modes."
            )
        return union

    __ror__ = __or__


class KernelizeFallback(Flag):
    """In which cases :func:`kernels.kernelize` may leave a layer its own forward.

    ``NO_LAYER``, ``NO_DEVICE``, ``NO_COMPATIBLE_PROPERTIES``, ``NO_COMPATIBLE_MODE``: nothing is
    registered for the layer, the type of device, its capability, or the mode. ``CANNOT_LOAD``:
    the kernel cannot be had, or its layer does not fit the model's. ``DEFAULT`` is all but the last.
    """

    NONE = 0
    NO_LAYER = auto()
    NO_DEVICE = auto()
    NO_COMPATIBLE_PROPERTIES = auto()
    NO_COMPATIBLE_MODE = auto()
    CANNOT_LOAD = auto()
    DEFAULT = NO_LAYER | NO_DEVICE | NO_COMPATIBLE_PROPERTIES | NO_COMPATIBLE_MODE
    ALL = DEFAULT | CANNOT_LOAD


# Which registered modes serve a wanted one, best first. A kernel for training also infers, and
# one for torch.compile also runs without; never the other way round.
_ORDER: dict[Mode, tuple[Mode, ...]] = {
    Mode.INFERENCE: (
        Mode.INFERENCE,
        Mode.INFERENCE | Mode.TORCH_COMPILE,
        Mode.TRAINING,
        Mode.TRAINING | Mode.TORCH_COMPILE,
        Mode.FALLBACK,
    ),
    Mode.TRAINING: (Mode.TRAINING, Mode.TRAINING | Mode.TORCH_COMPILE, Mode.FALLBACK),
    Mode.INFERENCE | Mode.TORCH_COMPILE: (
        Mode.INFERENCE | Mode.TORCH_COMPILE,
        Mode.TRAINING | Mode.TORCH_COMPILE,
        Mode.FALLBACK,
    ),
    Mode.TRAINING | Mode.TORCH_COMPILE: (Mode.TRAINING | Mode.TORCH_COMPILE, Mode.FALLBACK),
}


def modes_serving(mode: Mode) -> tuple[Mode, ...]:
    """Return the registered modes that may serve a wanted one, best first.

    Raises:
        UsageError: the mode is neither for inference nor for training.
    """
    try:
        return _ORDER[mode]
    except (KeyError, TypeError):
        if not isinstance(mode, Mode):
            raise WrongTypeError("mode", "Mode.INFERENCE or Mode.TRAINING", mode) from None
        found = describe_mode(mode)
        raise UsageError(
            "mode: expected Mode.INFERENCE or Mode.TRAINING, either with | Mode.TORCH_COMPILE; "
            f"found {found}."
        ) from None


def describe_mode(mode: Mode) -> str:
    """Write a mode as its flags: ``INFERENCE | TORCH_COMPILE``."""
    return " | ".join(flag.name or "" for flag in Mode if flag in mode) or "no mode"
