"""One script for the published client and for ours: the same calls, and what came of each as JSON.

``KERNEL`` names a built project. Only what both offer is used; a layer that was replaced is told by its numbers.
"""

import json
import os
import warnings
from pathlib import Path

import torch
from torch import nn

from kernels import (
    CUDAProperties,
    Device,
    FuncRepository,
    KernelizeFallback,
    LayerRepository,
    LocalFuncRepository,
    LocalLayerRepository,
    Mode,
    ROCMProperties,
    kernelize,
    register_kernel_mapping,
    replace_kernel_forward_from_hub,
    use_kernel_forward_from_hub,
    use_kernel_func_from_hub,
    use_kernel_mapping,
    use_kernelized_func,
)

warnings.simplefilter("ignore")
PATH = Path(os.environ["KERNEL"])
INFERENCE, TRAINING, COMPILE = Mode.INFERENCE, Mode.TRAINING, Mode.TORCH_COMPILE
MODES = {
    "I": INFERENCE,
    "T": TRAINING,
    "IC": INFERENCE | COMPILE,
    "TC": TRAINING | COMPILE,
    "F": Mode.FALLBACK,
}
FALLBACKS = [KernelizeFallback.NONE, *KernelizeFallback]
FALLBACKS += [KernelizeFallback.DEFAULT, KernelizeFallback.ALL]
result = {}


def layer(name):
    return LocalLayerRepository(PATH, layer_name=name)


def tell(call):
    """What a call returns, or the standard kinds of its error."""
    kinds = (TypeError, ValueError, FileNotFoundError, AttributeError)
    try:
        return call()
    except (*kinds, RuntimeError) as err:
        return [kind.__name__ for kind in kinds if isinstance(err, kind)]


@use_kernel_forward_from_hub("Layer")
class Layer(nn.Module):
    def forward(self, x):
        return x


def factor_of(mapping, mode=INFERENCE, *, inherit=True, make=Layer, **more):
    """By what the kernelized layer multiplies; 1 is the layer's own forward."""
    model = nn.Sequential(make())

    def run():
        with use_kernel_mapping(mapping, inherit_mapping=inherit):
            kernelize(model, mode=mode, device="cpu", **more)
        with torch.no_grad():
            return model(torch.ones(1)).item()

    return tell(run)


# Every registered mode against every wanted one; kernels that lack compile or backward.
for wanted in ("I", "T", "IC", "TC"):
    for registered, mode in MODES.items():
        for name in ("Times2", "OnlyEager", "NoBackward"):
            mapping = {"Layer": {"cpu": {mode: layer(name)}}}
            key = f"wanted {wanted}, registered {registered}, {name}"
            result[key] = factor_of(mapping, MODES[wanted])
# Which of all wins.
for wanted in ("I", "T", "IC", "TC"):
    every = {"I": "Times2", "T": "Times3", "IC": "Times5", "TC": "Times7", "F": "Times11"}
    while every:
        mapping = {"Layer": {"cpu": {MODES[key]: layer(name) for key, name in every.items()}}}
        result[f"wanted {wanted} of {sorted(every)}"] = factor_of(mapping, MODES[wanted])
        every.pop(min(every))

# Fallback, case by case.
other_device = {"Layer": {"cuda": layer("Times2")}}
other_mode = {"Layer": {"cpu": {TRAINING: layer("Times2")}}}
missing = {"Layer": {"cpu": LocalLayerRepository(PATH / "nowhere", layer_name="Times2")}}
for name, mapping, mode in (
    ("no layer", {}, INFERENCE),
    ("no device", other_device, INFERENCE),
    ("no mode", {"Layer": {"cpu": {INFERENCE: layer("Times2")}}}, TRAINING),
    ("not there", missing, INFERENCE),
    ("no such layer", {"Layer": {"cpu": layer("Absent")}}, INFERENCE),
    ("too many arguments", {"Layer": {"cpu": layer("TwoArguments")}}, INFERENCE),
    ("has an init", {"Layer": {"cpu": layer("HasInit")}}, INFERENCE),
):
    for fallback in (True, False, *FALLBACKS):
        key = f"{name}, {fallback}"
        result[key] = factor_of(mapping, mode, use_fallback=fallback)

# Mappings stack and end.
register_kernel_mapping({"Layer": {"cpu": layer("Times2")}})
result["registered"] = factor_of({})
result["not inherited"] = factor_of({}, inherit=False)
result["inner wins"] = factor_of({"Layer": {"cpu": layer("Times3")}})
result["after"] = factor_of({})
register_kernel_mapping({"Other": {"cpu": layer("Times3")}}, inherit_mapping=False)
result["forgotten"] = factor_of({})

# Classes and functions.
double = use_kernel_forward_from_hub("function")(lambda x: x)
aliased = use_kernel_func_from_hub("function")(lambda x: x)


@use_kernelized_func(double)
class Calls(nn.Module):
    def forward(self, x):
        return double(x)


class Holds(nn.Module):
    def __init__(self):
        super().__init__()
        self.fn = aliased

    def forward(self, x):
        return self.fn(x)


class Plain(nn.Module):
    def forward(self, x):
        return x


replace_kernel_forward_from_hub(Plain, "Layer", lambda module: module.training)
for name, repository in (
    ("layer", layer("Times2")),
    ("function", LocalFuncRepository(PATH, func_name="times13")),
):
    mapping = {"function": {"cpu": repository}}
    result[f"{name} for a function that is called"] = factor_of(mapping, make=Calls)
    result[f"{name} for a function that is held"] = factor_of(mapping, make=Holds)
    kernelize(Calls(), mode=INFERENCE, device="cpu")
result["keys of functions"] = sorted(Calls()._kernel_funcs)
result["condition holds"] = factor_of({"Layer": {"cpu": layer("Times2")}}, make=Plain)
result["condition fails"] = factor_of(
    {"Layer": {"cpu": layer("Times2")}}, make=lambda: Plain().eval()
)
result["name on the class"] = Layer.kernel_layer_name

# What cannot be.
for name, call in {
    "inference and training": lambda: INFERENCE | TRAINING,
    "fallback and inference": lambda: Mode.FALLBACK | INFERENCE,
    "kernelize for fallback": lambda: kernelize(Layer(), mode=Mode.FALLBACK, device="cpu"),
    "kernelize for compile": lambda: kernelize(Layer(), mode=COMPILE, device="cpu"),
    "unknown device": lambda: kernelize(Layer(), mode=INFERENCE, device="gpu"),
    "no device": lambda: kernelize(Layer(), mode=INFERENCE),
    "properties of another": lambda: Device("cpu", CUDAProperties(80, 90)),
    "rocm for cuda": lambda: Device("cuda", ROCMProperties(80, 90)),
    "not marked": lambda: use_kernelized_func(tell)(Plain),
    "marked number": lambda: use_kernel_forward_from_hub("x")(1),
    "version and revision": lambda: LayerRepository("a/b", layer_name="L", version=1, revision="x"),
}.items():
    told = tell(call)
    result[name] = told if isinstance(told, list) else "fine"
one = LayerRepository("a/b", layer_name="L", version=1)
result["equal"] = one == LayerRepository("a/b", layer_name="L", version=1, revision=None)
result["hash"] = len({one, LayerRepository("a/b", layer_name="L", version=1)})
result["other kind"] = one == FuncRepository("a/b", func_name="L", version=1)
print(json.dumps(result))
