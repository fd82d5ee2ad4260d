"""Kernelized models in the hands of torch's own tools: compiled, exported, saved, quantised, sharded."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic
from torch.nn.utils import parametrize

from kernels import (
    LocalLayerRepository,
    Mode,
    kernelize,
    report,
    unkernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)
from kernels.errors import KernelizeError

LAYERS = """
import torch
from torch import nn

CALLS = []


class Scale(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        return x * self.weight


class Gate(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        x = x.to(self.gate.weight.dtype)
        return torch.nn.functional.linear(x, self.gate.weight) * self.up(x)
"""


@use_kernel_forward_from_hub("Scale")
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x):
        return self.weight * x


@use_kernel_forward_from_hub("Gate")
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = nn.Linear(4, 4, bias=False), nn.Linear(4, 4)

    def forward(self, x):
        return self.gate(x) * self.up(x)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = Scaled(), Gated()

    def forward(self, x):
        return self.mlp(self.norm(x))


@pytest.fixture
def mapped(write_kernel):
    project = write_kernel(LAYERS, name="tools")
    kernels = {n: LocalLayerRepository(project, layer_name=n) for n in ("Scale", "Gate")}
    return use_kernel_mapping({name: {"cpu": kernel} for name, kernel in kernels.items()})


@pytest.fixture
def plain():
    torch.manual_seed(0)
    return Both().eval()


@pytest.fixture
def model(plain, mapped):
    mode = Mode.INFERENCE | Mode.TORCH_COMPILE
    with mapped:
        return kernelize(copy.deepcopy(plain), mode=mode, use_fallback=False)


@pytest.fixture
def x():
    return torch.randn(3, 4)


def runs(model):
    return {layer.path: layer.runs for layer in report(model).layers}


def test_compiled_as_one_graph(model, plain, x):
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x), plain(x))
    assert len(graphs) == 1


def test_exported(model, plain, x):
    exported = torch.export.export(model, (x,))
    torch.testing.assert_close(exported.module()(x), plain(x))
    assert set(exported.state_dict) == set(plain.state_dict())


def test_weights_are_saved_and_loaded_as_weights_alone(model, plain, x):
    stream = io.BytesIO()
    with torch.no_grad():
        model.norm.weight.fill_(7)
    torch.save(model.state_dict(), stream)
    stream.seek(0)
    weights = torch.load(stream, weights_only=True)
    plain.load_state_dict(weights)
    torch.testing.assert_close(model(x), plain(x))


def test_a_whole_model_is_saved_for_a_loader_of_weights_alone_after_unkernelize(model, x):
    """torch takes a bound forward for code; its own list of what is safe then holds for this model, too."""
    classes = [Both, Scaled, Gated, nn.Linear, set]
    stream = io.BytesIO()
    torch.save(unkernelize(model), stream)
    stream.seek(0)
    with torch.serialization.safe_globals(classes):
        loaded = torch.load(stream, weights_only=True)
    torch.testing.assert_close(loaded(x), model(x))
    assert runs(loaded) == {"norm": "original", "mlp": "original"}


def test_weights_of_another_place_are_taken_for_one_call(model, plain, x):
    weights = {name: 3 * value for name, value in plain.state_dict().items()}
    found = torch.func.functional_call(model, weights, (x,))
    torch.testing.assert_close(found, torch.func.functional_call(plain, weights, (x,)))
    torch.testing.assert_close(model(x), plain(x))


def test_weights_that_are_computed(model, plain, x):
    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    for each in (model, plain):
        parametrize.register_parametrization(each.norm, "weight", Twice())
        parametrize.register_parametrization(each.mlp.gate, "weight", Twice())
    torch.testing.assert_close(model(x), plain(x))
    assert {layer.reason for layer in report(model).layers} == {""}


def test_data_parallel_without_a_gpu(model, plain, x):
    torch.testing.assert_close(nn.DataParallel(model)(x), plain(x))


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_a_kernel_that_would_pass_a_quantised_layer_by_is_refused(plain, mapped, x):
    quantised = quantize_dynamic(plain, {nn.Linear})
    expected = quantised(x)
    with mapped:
        with pytest.raises(
            KernelizeError, match=r"mlp: .*reads gate\.weight and does not call gate"
        ):
            kernelize(quantised, mode=Mode.INFERENCE, use_fallback=False)
        kernelize(quantised, mode=Mode.INFERENCE, use_fallback=fallback())
    assert runs(quantised) == {"norm": "kernel", "mlp": "original"}
    torch.testing.assert_close(quantised(x), expected)


def fallback():
    from kernels import KernelizeFallback

    return KernelizeFallback.ALL


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_a_layer_that_is_quantised_afterwards_is_told(model):
    reason = {
        each.path: each.reason for each in report(quantize_dynamic(model, {nn.Linear})).layers
    }
    assert reason["norm"] == ""
    assert reason["mlp"] == (
        "it reads gate.weight and does not call gate, and Linear computes that: kernelize it again"
    )


class Adapted(nn.Module):
    """As adapters wrap a linear layer, whose weight they show."""

    def __init__(self, base):
        super().__init__()
        self.base_layer, self.more = base, nn.Linear(4, 4, bias=False)

    @property
    def weight(self):
        return self.base_layer.weight

    def forward(self, x):
        return self.base_layer(x) + self.more(x)


class Clipped(nn.Linear):
    def forward(self, x):
        return super().forward(x).clamp(-1, 1)


def hooked(linear):
    linear.register_forward_hook(lambda *_: None)
    return linear


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Adapted, "Adapted computes that"),
        (lambda _: Clipped(4, 4), "Clipped has a forward of its own"),
        (hooked, "which has hooks"),
        (lambda _: nn.Identity(), "Identity does not have that"),
    ],
)
def test_a_kernel_passes_by_no_layer_that_does_more_than_its_weight(plain, mapped, change, why):
    plain.mlp.gate = change(plain.mlp.gate)
    with mapped, pytest.raises(KernelizeError, match=why):
        kernelize(plain, mode=Mode.INFERENCE, use_fallback=False)
    # What the kernel calls may do as it likes.
    plain.mlp.gate, plain.mlp.up = nn.Linear(4, 4, bias=False), hooked(nn.Linear(4, 4))
    with mapped:
        kernelize(plain, mode=Mode.INFERENCE, use_fallback=False)
    assert runs(plain) == {"norm": "kernel", "mlp": "kernel"}
