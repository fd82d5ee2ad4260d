"""The gradients: against those of the reference in float64, in training, and under torch.compile."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import torch
from torch.autograd import forward_ad

LAYERS = {
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
# Relative to 1 + |exact|. The 16-bit gradients are rounded once.
TOLERANCES = {torch.float32: 2e-6, torch.float16: 6e-4, torch.bfloat16: 5e-3}


@pytest.fixture(autouse=True)
def forget_compiled_graphs() -> None:
    torch._dynamo.reset()


@pytest.fixture
def recording(activation: ModuleType) -> ModuleType:
    return importlib.import_module(f"{activation.__name__}._autograd")


@pytest.fixture(params=["by torch", "by the kernel", "by its node in C++"])
def recorded(
    request: pytest.FixtureRequest,
    recording: ModuleType,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each way in which an element-wise call is recorded, whatever its size."""
    if request.param == "by its node in C++":
        if device == "cpu" or not recording.has_node:
            pytest.skip("there is none for this device and this torch")
        return
    by_kernel = request.param == "by the kernel"
    monkeypatch.setattr(recording, "has_node", False)
    monkeypatch.setattr(recording, "by_kernel", lambda x: by_kernel)
    monkeypatch.setattr(recording, "MOST_RECORDED_BY_TORCH", -1 if by_kernel else 1 << 62)


def gradient(function, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(function(leaf), leaf, dy)
    return found


def inputs(op: str, dtype: torch.dtype, rows: int = 65) -> tuple[torch.Tensor, torch.Tensor]:
    """Values that reach into both tails, and gradients."""
    torch.manual_seed(0)
    x = (torch.randn(rows, 140) * 4).to(dtype)
    return x, torch.randn(rows, 70 if "_and_" in op else 140).to(dtype)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("layer", "op"), LAYERS.items())
def test_a_layer_has_the_gradient_of_its_formula(
    activation: ModuleType, layer: str, op: str, dtype: torch.dtype
) -> None:
    x, dy = inputs(op, dtype)
    found = gradient(getattr(activation.layers, layer)(), x, dy)
    exact = gradient(getattr(activation.reference, op), x.double(), dy.double())
    assert found.dtype == dtype
    assert found.shape == x.shape
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", sorted(set(LAYERS.values()) - {"gelu_fast", "gelu_new"}))
def test_the_plain_formulas_are_exact(activation: ModuleType, op: str) -> None:
    x, dy = (tensor.double() for tensor in inputs(op, torch.float32))
    options = (0.0,) if op == "fatrelu_and_mul" else ()
    found = activation.gradients.input_gradient(op, dy, x, *options)
    exact = gradient(getattr(activation.reference, op), x, dy)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("op", ["gelu", "gelu_tanh", "gelu_quick", "silu"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_slopes_far_out_are_those_of_the_limits(
    activation: ModuleType, op: str, dtype: torch.dtype
) -> None:
    layers = {name: layer for layer, name in LAYERS.items()}
    large = torch.finfo(dtype).max
    x = torch.tensor([large, 1e4, 300.0, -300.0, -1e4, -large, float("nan")]).to(dtype)
    found = gradient(getattr(activation.layers, layers[op])(), x, torch.ones_like(x))
    assert found[:3].tolist() == [1.0, 1.0, 1.0]
    assert found[3:6].tolist() == [0.0, 0.0, 0.0]
    assert found[6].isnan()


def test_a_gradient_that_is_not_dense(activation: ModuleType) -> None:
    x, _ = inputs("silu_and_mul", torch.float32)
    layer = activation.layers.SiluAndMul()
    dy = torch.ones(()).expand(65, 70)  # as that of a sum
    exact = gradient(activation.reference.silu_and_mul, x, dy)
    torch.testing.assert_close(gradient(layer, x, dy), exact, rtol=1e-5, atol=1e-5)
    wide = torch.randn(140, 130)[:, ::2].t()
    exact = gradient(activation.reference.silu_and_mul, wide, dy)
    torch.testing.assert_close(gradient(layer, wide, dy), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (1, 2), (3, 6)])
def test_gradients_of_small_and_empty_tensors(activation: ModuleType, shape: tuple) -> None:
    x = torch.randn(shape)
    dy = torch.randn(shape[0], shape[1] // 2)
    exact = gradient(activation.reference.mul_and_silu, x, dy)
    found = gradient(activation.layers.MulAndSilu(), x, dy)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)


def test_fatrelu_uses_its_threshold(activation: ModuleType) -> None:
    layer = activation.layers.FatreluAndMul()
    layer.threshold = 0.5
    x = torch.tensor([[0.4, 0.6, 2.0, 3.0]])
    assert gradient(layer, x, torch.ones(1, 2)).tolist() == [[0.0, 3.0, 0.0, x[0, 1].item()]]


@pytest.mark.usefixtures("recorded")
def test_a_gradient_flows_through_out(activation: ModuleType) -> None:
    x, dy = inputs("silu", torch.float32)

    def through_out(leaf: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        activation.silu(out, leaf * 2)
        return out

    exact = gradient(lambda leaf: activation.reference.silu(leaf * 2), x, dy)
    torch.testing.assert_close(gradient(through_out, x, dy), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("recorded")
def test_a_transform_of_torch_func_is_right_or_refused(activation: ModuleType) -> None:
    x = torch.randn(4, 8)
    layers, reference = activation.layers, activation.reference
    for layer, op in ((layers.Silu(), reference.silu), (layers.Gelu(), reference.gelu)):
        slopes = torch.func.vmap(torch.func.grad(lambda row, f=layer: f(row).sum()))(x)
        torch.testing.assert_close(slopes, gradient(op, x, torch.ones_like(x)))
    for layer in (layers.SiluAndMul(), layers.QuickGELU()):
        with pytest.raises(RuntimeError, match="setup_context"):
            torch.func.grad(lambda values, f=layer: f(values).sum())(x)


@pytest.mark.parametrize("name", ["silu", "gelu_tanh_and_mul"])
def test_forward_mode_is_refused_not_a_slope_of_zero(activation: ModuleType, name: str) -> None:
    layers = {function: layer for layer, function in LAYERS.items()}
    layer = getattr(activation.layers, layers[name])()
    x = torch.randn(4, 8)

    def through_out(values: torch.Tensor) -> torch.Tensor:
        out = torch.empty(4, 4 if name.endswith("mul") else 8)
        getattr(activation, name)(out, values)
        return out

    for function in (layer, through_out):
        with pytest.raises(NotImplementedError, match=f"{name}: input has a tangent"):
            torch.func.jvp(function, (x,), (torch.ones_like(x),))
        with forward_ad.dual_level():
            function(x)
            with pytest.raises(NotImplementedError, match=f"{name}: input has a tangent"):
                function(forward_ad.make_dual(x, torch.ones_like(x)))


def test_overwriting_what_a_backward_needs_is_an_error(activation: ModuleType) -> None:
    weight = torch.randn(4, 8, requires_grad=True)
    buffer = torch.ones(4, 8)
    product = (weight * buffer).sum()
    activation.silu(buffer, torch.randn(4, 8))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_an_out_that_is_part_of_a_graph_forgets_its_past(activation: ModuleType) -> None:
    leaf = torch.randn(4, 8, requires_grad=True)
    out = leaf * 2
    activation.silu(out, torch.randn(4, 8))
    (found,) = torch.autograd.grad(out.sum(), leaf)
    assert not found.any()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        activation.silu(leaf, torch.randn(4, 8))


def test_inference_mode(activation: ModuleType) -> None:
    x = torch.randn(4, 8)
    with torch.inference_mode():
        out = torch.empty(4, 8)
        activation.silu(out, x)
        assert torch.equal(activation.layers.Silu()(x), out)
        activation.silu(x, x)
    assert torch.equal(x, out)


def test_small_calls_are_recorded_by_torch_where_it_has_the_op_and_no_node_is_here(
    activation: ModuleType, recording: ModuleType, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def node(layer: str, dtype: torch.dtype, count: int = 8) -> str:
        x = torch.randn(count).to(dtype).requires_grad_()
        name = type(getattr(activation.layers, layer)()(x).grad_fn).__name__
        return name.removesuffix("Backward")

    monkeypatch.setattr(recording, "has_node", False)
    monkeypatch.setattr(recording, "MOST_RECORDED_BY_TORCH", 8)
    kernel = "Recorder"
    assert node("Silu", torch.bfloat16) == "SiluBackward0"
    assert node("Gelu", torch.float32) == "GeluBackward0"
    assert node("FastGELU", torch.float16) == "GeluBackward0"
    # There is no kernel for the gradient on a CPU.
    assert node("Silu", torch.bfloat16, 9) == (kernel if device == "cuda" else "SiluBackward0")
    # torch's has NaN for the slopes of the largest values of these.
    assert node("GeluTanh", torch.bfloat16) == kernel
    assert node("NewGELU", torch.float32) == kernel
    assert node("QuickGELU", torch.float16) == kernel
    assert node("SiluAndMul", torch.float16) == kernel
    with pytest.raises(ValueError, match=r"silu: input must be float32.*found torch.float64"):
        node("Silu", torch.float64)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("layer", "op"), LAYERS.items())
def test_the_node_in_cpp_makes_what_the_one_in_python_does(  # noqa: PLR0917
    activation: ModuleType,
    recording: ModuleType,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    layer: str,
    op: str,
    dtype: torch.dtype,
) -> None:
    if device == "cpu" or not recording.has_node:
        pytest.skip("there is none for this device and this torch")
    x, dy = inputs(op, dtype)
    module = getattr(activation.layers, layer)()
    y = module(x.requires_grad_())
    assert y.grad_fn.name().endswith("_backward")
    (found,) = torch.autograd.grad(y, x, dy)
    monkeypatch.setattr(recording, "has_node", False)
    monkeypatch.setattr(recording, "MOST_RECORDED_BY_TORCH", -1)
    monkeypatch.setattr(recording, "by_kernel", lambda x: True)
    again = module(x)
    assert "Recorder" in type(again.grad_fn).__name__
    assert torch.equal(y, again)
    assert torch.equal(found, torch.autograd.grad(again, x, dy)[0])


def test_nothing_is_recorded_without_need(activation: ModuleType) -> None:
    x = torch.randn(4, 8)
    layer = activation.layers.Silu()
    assert not layer(x).requires_grad
    with torch.no_grad():
        assert not layer(x.requires_grad_()).requires_grad
    assert layer(x).requires_grad


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("op", ["gelu", "gelu_tanh", "gelu_quick", "silu", "silu_and_mul"])
def test_there_is_a_second_derivative(activation: ModuleType, op: str) -> None:
    layers = {name: layer for layer, name in LAYERS.items()}

    def penalty(function, values: torch.Tensor) -> torch.Tensor:
        leaf = values.detach().requires_grad_()
        (first,) = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)[0]

    x, _ = inputs(op, torch.float32, rows=3)
    exact = penalty(getattr(activation.reference, op), x.double())
    found = penalty(getattr(activation.layers, layers[op])(), x)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("layer", "op"), LAYERS.items())
def test_training_compiles_into_one_graph(activation: ModuleType, layer: str, op: str) -> None:
    module = getattr(activation.layers, layer)()
    x, dy = inputs(op, torch.float32, rows=5)

    def step(leaf: torch.Tensor) -> torch.Tensor:
        return module(leaf * 2) + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradient(compiled, x, dy), gradient(step, x, dy))


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("op", ["gelu", "gelu_tanh", "gelu_quick", "silu", "mul_and_silu"])
def test_opcheck_of_the_kernels(
    activation: ModuleType, device: str, op: str, dtype: torch.dtype
) -> None:
    if device == "cpu":
        pytest.skip("on a CPU the gradients are plain torch")
    x, dy = inputs(op, dtype, rows=3)
    backward = getattr(activation.ops, f"{op}_backward").default
    torch.library.opcheck(backward, (dy, x))
    with pytest.raises(RuntimeError, match="dimension 1"):
        backward(dy[:, 1:].contiguous(), x)
