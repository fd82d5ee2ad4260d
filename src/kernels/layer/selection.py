"""Which layers share what is measured of them: those of one kernel, original, size, device and mode."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from kernels.layer.device import Target
from kernels.layer.loaded import LoadedLayer
from kernels.layer.measured import Selection
from kernels.layer.mode import Mode, describe_mode
from kernels.layer.timings import find_timings_file


def find_selection(
    loaded: LoadedLayer, module: Any, *, mode: Mode, target: Target, state: Path
) -> Selection:
    """Return what keeps the measurements of a model's layer; the same for all that share them.

    Args:
        loaded: the kernel's layer.
        module: the model's layer; the forward of its class is the original.
        mode: what the model is kernelized for.
        target: the device that it is kernelized for.
        state: the user's state directory.
    """
    parameters = ", ".join(map(_describe_parameter, module.parameters()))
    return _share(loaded, type(module).forward, parameters, mode=mode, target=target, state=state)


@functools.cache
def _share(
    loaded: LoadedLayer, original: Any, parameters: str, *, mode: Mode, target: Target, state: Path
) -> Selection:
    file = find_timings_file(
        state,
        variant=loaded.variant,
        layer=loaded.cls.__qualname__,
        original=original,
        parameters=parameters,
        facts=f"{_name_device(target)}, {describe_mode(mode)}",
    )
    return Selection(
        file,
        device_type="cuda" if target.type == "rocm" else target.type,
        training=Mode.TRAINING in mode,
        compiled=Mode.TORCH_COMPILE in mode,
    )


def _describe_parameter(parameter: Any) -> str:
    sizes = "x".join(map(str, parameter.shape))
    return f"{str(parameter.dtype).removeprefix('torch.')} {sizes}"


def _name_device(target: Target) -> str:
    import torch

    if target.type != "cpu":
        return f"{target} {target.name}" if target.name else str(target)
    return f"cpu {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
