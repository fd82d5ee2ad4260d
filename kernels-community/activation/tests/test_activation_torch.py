"""The ops as torch sees them: schema, fake implementations, torch.compile, and the layers."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
FUNCTIONS_OF_LAYERS = {
    "FastGELU": "gelu_fast",
    "FatreluAndMul": "fatrelu_and_mul",
    "Gelu": "gelu",
    "GeluAndMul": "gelu_and_mul",
    "GeluTanh": "gelu_tanh",
    "GeluTanhAndMul": "gelu_tanh_and_mul",
    "MulAndSilu": "mul_and_silu",
    "NewGELU": "gelu_new",
    "QuickGELU": "gelu_quick",
    "Silu": "silu",
    "SiluAndMul": "silu_and_mul",
}
FUNCTIONS = sorted(FUNCTIONS_OF_LAYERS.values())


@pytest.fixture(autouse=True)
def forget_compiled_graphs() -> None:
    torch._dynamo.reset()


def arguments(name: str, dtype: torch.dtype) -> tuple:
    x = torch.randn(4, 34).to(dtype)
    width = 17 if name.endswith("_and_mul") or name == "mul_and_silu" else 34
    out = torch.empty(4, width, dtype=dtype)
    return (out, x, 0.1) if name == "fatrelu_and_mul" else (out, x)


def test_the_public_names(activation: ModuleType) -> None:
    assert set(activation.__all__) == {*FUNCTIONS, "layers"}
    assert set(activation.layers.__all__) == set(FUNCTIONS_OF_LAYERS)
    assert set(activation.reference.__all__) == set(FUNCTIONS)
    assert set(dir(activation)) >= set(FUNCTIONS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_opcheck(activation: ModuleType, name: str, dtype: torch.dtype) -> None:
    torch.library.opcheck(getattr(activation.ops, name).default, arguments(name, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"gelu_fast", "gelu_new"}))
def test_opcheck_of_new_tensors(activation: ModuleType, name: str, dtype: torch.dtype) -> None:
    value = getattr(activation.ops, f"{name}_value").default
    _, x, *options = arguments(name, dtype)
    for layout in (x, x.t().contiguous().t(), torch.stack([x, x], -1)[..., 0], x[:0], x[:1]):
        torch.library.opcheck(value, (layout, *options))


def test_a_new_tensor_is_laid_out_as_torch_does_it(activation: ModuleType) -> None:
    wide = torch.randn(3, 4, 6, 8)
    layouts = {
        "contiguous": wide,
        "channels last": wide.contiguous(memory_format=torch.channels_last),
        "transposed": wide.transpose(0, 2),
        "every other": wide[..., ::2],
        "expanded": wide[:1].expand(3, 4, 6, 8),
        "empty": wide[:0],
        "one row": wide[:1],
    }
    for name, x in layouts.items():
        found = activation.layers.Silu()(x)
        assert found.stride() == torch.empty_like(x).stride(), name
        torch.testing.assert_close(found, F.silu(x))
        assert activation.layers.SiluAndMul()(x).is_contiguous()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_compiles_into_one_graph(activation: ModuleType, name: str) -> None:
    function = getattr(activation, name)
    out, *rest = arguments(name, torch.float32)

    def step(x: torch.Tensor, *options: float) -> torch.Tensor:
        result = torch.empty_like(out)
        function(result, x * 2, *options)
        return result + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*rest), step(*rest))


class Seen(TorchDispatchMode):
    """Notes what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name().split("::")[1])
        return func(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    """A tensor that takes part in what is done with it."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs)


def test_modes_and_subclasses_see_the_op(activation: ModuleType) -> None:
    x = torch.randn(4, 8)
    with Seen() as seen:
        activation.silu(torch.empty(4, 8), x)
        activation.layers.SiluAndMul()(x)
    assert [name for name in seen.names if "silu" in name] == [
        "silu",
        "silu_and_mul_value",
    ]

    Tagged.seen.clear()
    activation.silu(torch.empty(4, 8), x.as_subclass(Tagged))
    assert "silu.default" in Tagged.seen


def test_it_is_traced_without_dynamo(activation: ModuleType) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        activation.silu(out, x)
        return activation.layers.Gelu()(out)

    class Step(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return step(x)

    x = torch.randn(4, 8)
    for traced in (
        make_fx(step, tracing_mode="fake")(x),
        torch.export.export(Step(), (x,), strict=False).module(),
    ):
        assert ".silu.default" in traced.code
        assert ".gelu_value.default" in traced.code
        torch.testing.assert_close(traced(x), step(x))


@pytest.mark.parametrize(("layer", "function"), FUNCTIONS_OF_LAYERS.items())
def test_a_layer_computes_what_its_function_does(
    activation: ModuleType, layer: str, function: str
) -> None:
    module = getattr(activation.layers, layer)()
    out, x, *_ = arguments(function, torch.bfloat16)
    getattr(activation, function)(out, x)
    assert torch.equal(module(x), out)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), out)


@pytest.mark.parametrize("layer", FUNCTIONS_OF_LAYERS)
def test_a_layer_has_nothing_that_a_model_layer_could_lack(
    activation: ModuleType, layer: str
) -> None:
    cls = getattr(activation.layers, layer)
    extra = set(dict(inspect.getmembers(cls))) - set(dict(inspect.getmembers(nn.Module)))
    assert extra == {"can_torch_compile", "has_backward"}
    assert cls.__init__ is nn.Module.__init__
    assert cls.can_torch_compile
    assert cls.has_backward
    assert list(inspect.signature(cls.forward).parameters) == ["self", "x"]


def test_fatrelu_takes_the_threshold_of_the_layer_it_is_put_into(activation: ModuleType) -> None:
    module = activation.layers.FatreluAndMul()
    module.threshold = 0.5
    x = torch.tensor([[0.4, 0.6, 1.0, 1.0]])
    torch.testing.assert_close(module(x), torch.tensor([[0.0, 0.6]]))


def test_the_example_that_introduces_the_kernel(activation: ModuleType) -> None:
    torch.manual_seed(42)
    x = torch.randn((4, 4), dtype=torch.float16)
    y = torch.empty_like(x)
    activation.gelu_fast(y, x)
    torch.testing.assert_close(y, F.gelu(x), rtol=1e-2, atol=1e-2)


def test_a_layer_refuses_what_its_function_refuses(activation: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"silu_and_mul: .* must be even; found shape \(2, 7\)"):
        activation.layers.SiluAndMul()(torch.empty(2, 7))
    with pytest.raises(ValueError, match=r"gelu: input must be float32.*found torch.float64"):
        activation.layers.Gelu()(torch.empty(2, 8).double())
