"""The ops as torch sees them: schema, fakes, torch.compile, transforms, and the layers."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import nn

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
EPS = 1e-5


@pytest.fixture(autouse=True)
def forget_compiled_graphs() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Norm(nn.Module):
    """A model's own layer, with the epsilon under the name that is given."""

    def __init__(self, hidden: int, name: str, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(hidden))
        self.bias = nn.Parameter(torch.randn(hidden)) if bias else None
        setattr(self, name, EPS)


def test_the_public_names(norms: ModuleType) -> None:
    assert set(norms.__all__) == {"layer_norm_fn", "layers", "rms_norm_fn", "rms_norm_forward"}
    assert norms.rms_norm_forward is norms.rms_norm_fn
    assert set(norms.layers.__all__) == {"LayerNorm", "LlamaRMSNorm"}
    assert set(norms.reference.__all__) == {"add_norm", "norm", "norm_backward"}


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opcheck(norms: ModuleType, device: str, dtype: torch.dtype, is_rms: bool) -> None:
    def some(*shape: int, grad: bool = True) -> torch.Tensor:
        return torch.randn(shape, device=device).to(dtype).requires_grad_(grad)

    check = torch.library.opcheck
    ops = norms.ops
    check(ops.norm.default, (some(4, 34), some(34), some(34), EPS, is_rms))
    check(ops.norm.default, (some(4, 34), None, None, EPS, is_rms))
    add_norm = (some(2, 4, 34), some(2, 4, 34), some(34), None, EPS, is_rms, dtype)
    check(ops.add_norm.default, add_norm)
    h, weight, dy = some(4, 34, grad=False), some(34, grad=False), some(4, 34, grad=False)
    check(ops.norm_backward.default, (h, weight, dy, None, EPS, is_rms, dtype, dtype))
    check(ops.norm_backward.default, (h, None, dy, dy, EPS, is_rms, None, None))


@pytest.mark.parametrize("prenorm", [False, True])
@pytest.mark.parametrize("name", ["rms_norm_fn", "layer_norm_fn"])
def test_a_function_compiles_into_one_graph(
    norms: ModuleType, device: str, name: str, prenorm: bool
) -> None:
    function = getattr(norms, name)
    shapes = [(6, 48), (48,), (48,), (6, 48)]
    leaves = [torch.randn(s, device=device, requires_grad=True) for s in shapes]

    def step(x, weight, bias, residual):
        y = function(x * 2, weight, bias, residual, eps=EPS, prenorm=prenorm)
        return (y[0] * y[1]).sum() if prenorm else (y * y).sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    found, expected = compiled(*leaves), step(*leaves)
    torch.testing.assert_close(found, expected)
    for a, b in zip(
        torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_a_compiled_function_takes_other_numbers_of_rows(norms: ModuleType, device: str) -> None:
    compiled = torch.compile(norms.rms_norm_fn, fullgraph=True, dynamic=True, backend="aot_eager")
    weight = torch.randn(48, device=device)
    for rows in (3, 5, 1):
        x = torch.randn(rows, 48, device=device)
        torch.testing.assert_close(compiled(x, weight), norms.rms_norm_fn(x, weight))


def test_transforms_of_functions(norms: ModuleType, device: str) -> None:
    x, weight = torch.randn(4, 16, device=device), torch.randn(16, device=device)

    def loss(norm):
        return lambda x, weight: norm(x, weight).square().sum()

    found = torch.func.grad(loss(norms.rms_norm_fn), argnums=(0, 1))(x, weight)
    of_torch = loss(lambda x, w: F.rms_norm(x, (16,), w, 1e-6))
    for a, b in zip(found, torch.func.grad(of_torch, argnums=(0, 1))(x, weight), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("adds", [False, True], ids=["", "residual"])
def test_forward_mode(norms: ModuleType, device: str, adds: bool) -> None:
    from torch.autograd import forward_ad

    x, tangent, residual = (torch.randn(4, 16, device=device) for _ in range(3))
    weight = torch.randn(16, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        found = forward_ad.unpack_dual(
            norms.rms_norm_fn(dual, weight, None, residual if adds else None, eps=EPS)
        )
        h = dual + residual if adds else dual
        expected = forward_ad.unpack_dual(F.rms_norm(h, (16,), weight, EPS))
    torch.testing.assert_close(found.primal, expected.primal)
    torch.testing.assert_close(found.tangent, expected.tangent, rtol=1e-4, atol=1e-5)


def test_fake_tensors(norms: ModuleType, device: str) -> None:
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(3, 8, device=device, dtype=torch.float16)
        y = norms.rms_norm_fn(x, torch.empty(8, device=device, dtype=torch.float16))
    assert (y.shape, y.dtype, y.device.type) == ((3, 8), torch.float16, device)


@pytest.mark.parametrize("name", ["variance_epsilon", "eps"])
@pytest.mark.parametrize("layer", ["LlamaRMSNorm", "LayerNorm"])
def test_a_layer_put_into_a_model(norms: ModuleType, device: str, layer: str, name: str) -> None:
    cls = getattr(norms.layers, layer)
    x = torch.randn(5, 64, device=device) / 100  # so that the epsilon matters
    model = Norm(64, name, bias=layer == "LayerNorm").to(device)
    y = cls.forward(model, x)
    if layer == "LayerNorm":
        expected = F.layer_norm(x, (64,), model.weight, model.bias, EPS)
    else:
        expected = F.rms_norm(x, (64,), model.weight, EPS)
    torch.testing.assert_close(y, expected)
    model.forward = cls.forward.__get__(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), y)
    y.sum().backward()
    assert model.weight.grad is not None


def test_a_layer_is_subclassed(norms: ModuleType, device: str) -> None:
    class KernelRMSNorm(norms.layers.LlamaRMSNorm):
        def __init__(self, hidden_size: int, variance_epsilon: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(hidden_size))
            self.variance_epsilon = variance_epsilon

    model = KernelRMSNorm(32, EPS).to(device)
    x = torch.randn(3, 32, device=device) / 100
    torch.testing.assert_close(model(x), F.rms_norm(x, (32,), model.weight, EPS))

    class ByClass(norms.layers.LlamaRMSNorm):
        variance_epsilon = EPS

    other = ByClass()
    other.weight = model.weight
    assert torch.equal(other(x), model(x))


@pytest.mark.parametrize("layer", ["LlamaRMSNorm", "LayerNorm"])
def test_a_layer_has_nothing_that_a_model_layer_could_lack(norms: ModuleType, layer: str) -> None:
    cls = getattr(norms.layers, layer)
    extra = set(dict(inspect.getmembers(cls))) - set(dict(inspect.getmembers(nn.Module)))
    assert extra == {"can_torch_compile", "has_backward"}
    assert cls.__init__ is nn.Module.__init__
    assert cls.can_torch_compile
    assert cls.has_backward
    assert list(inspect.signature(cls.forward).parameters) == ["self", "hidden_states"]


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("adds", [False, True], ids=["", "residual"])
def test_a_gradient_of_a_gradient(norms: ModuleType, device: str, adds: bool, is_rms: bool) -> None:
    shapes = [(3, 16), (16,), (16,), (3, 16)]
    leaves = [torch.randn(s, device=device, requires_grad=True) for s in shapes]
    function = norms.rms_norm_fn if is_rms else norms.layer_norm_fn

    def penalty(norm, x, weight, bias, residual):
        y = norm(x, weight, bias, residual)
        dx, dweight = torch.autograd.grad(y.square().sum(), (x, weight), create_graph=True)
        return dx.square().sum() + dweight.square().sum()

    def exact(x, weight, bias, residual):
        return norms.reference.norm(x + residual, weight, bias, EPS, is_rms=is_rms)

    def ours(x, weight, bias, residual):
        return function(
            x if adds else x + residual, weight, bias, residual if adds else None, eps=EPS
        )

    wide = [t.detach().double().requires_grad_() for t in leaves]
    found = torch.autograd.grad(penalty(ours, *leaves), leaves)
    for a, b in zip(found, torch.autograd.grad(penalty(exact, *wide), wide), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3 * b.abs().max().item())
