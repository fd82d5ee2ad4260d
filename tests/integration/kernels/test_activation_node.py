"""The node of autograd of activation in C++, compiled for the torch that is here, over ops that a CPU has.

The ops stand in plain torch, and the node and what asks for it are told that a CPU is their device, so that all of
autograd that a user could notice is tried without a GPU. Budget: one minute on two cores.
"""

from __future__ import annotations

import gc
import importlib
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from node_on_cpu import (
    below_autograd,
    check_compiled,
    check_kept_elsewhere,
    check_many_gradients,
    check_tangent_of_gradient,
    compile_node,
    compiled_backward,
    differentiate_from_threads,
    draw,
    load_module,
    release_from_threads,
    write_ops,
)
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

PROJECT = Path(__file__).parents[3] / "kernels-community" / "activation"
ID = "_activation_node_on_a_cpu"
PACKAGE = "activation_node_kernel"
LAYERS = {
    "FastGELU": "gelu_tanh",
    "FatreluAndMul": "fatrelu_and_mul",
    "Gelu": "gelu",
    "GeluAndMul": "gelu_and_mul",
    "GeluTanhAndMul": "gelu_tanh_and_mul",
    "MulAndSilu": "mul_and_silu",
    "QuickGELU": "gelu_quick",
    "Silu": "silu",
    "SiluAndMul": "silu_and_mul",
}
TWO = ["Silu", "FatreluAndMul"]  # without options, and with one
KEPT: list[torch.library.Library] = []  # whose ops go with it


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (PROJECT / "csrc" / "node" / "activation_node.cpp").read_text(encoding="utf-8")
    assert text.count("AutogradCUDA") == 1
    text = text.replace("AutogradCUDA", "AutogradCPU")
    return compile_node(text, tmp_path_factory.mktemp("node"), ID)


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """Which ops were called, but for those of values without a gradient."""
    return []


@pytest.fixture(scope="module")
def kernel(library: Path, asked: list[str]) -> Iterator[ModuleType]:
    """The kernel's own Python, over ops in plain torch and the node."""
    folder = library.parent / PACKAGE
    shutil.copytree(PROJECT / "torch-ext" / "activation", folder)
    write_ops(folder, library, ID)
    for place in (folder / "_autograd.py", folder / "_checks.py"):
        text = place.read_text(encoding="utf-8")
        text = text.replace(".is_cuda", ".is_cpu").replace("torch.bfloat16,", "torch.float64,")
        place.write_text(text)
    sys.path.insert(0, str(library.parent))
    reference = load_module(f"{PACKAGE}_reference", folder / "reference.py")
    gradients = load_module(f"{PACKAGE}_gradients", folder / "gradients.py")
    define_ops(reference, gradients, asked)
    yield importlib.import_module(PACKAGE)
    sys.path.remove(str(library.parent))
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def define_ops(reference: ModuleType, gradients: ModuleType, asked: list[str]) -> None:
    ops = torch.library.Library(ID, "DEF")
    KEPT.append(ops)

    def compute(op: str, x: torch.Tensor, *options: float) -> torch.Tensor:
        return getattr(reference, op)(x, *options).to(x.dtype)

    def fill(op: str, out: torch.Tensor, x: torch.Tensor, *options: float) -> None:
        out.copy_(compute(op, x, *options))

    def differentiate(op: str, dy: torch.Tensor, x: torch.Tensor, *options: float) -> torch.Tensor:
        asked.append(op)
        return gradients.input_gradient(op, dy, x, *options)

    for op in reference.__all__:
        also = ", float threshold" if op == "fatrelu_and_mul" else ""
        ops.define(f"{op}(Tensor(a!) out, Tensor input{also}) -> ()")
        ops.impl(op, bind(fill, op), "CPU")
        if op in LAYERS.values():
            gradient = f"(Tensor grad_output, Tensor input{also}) -> Tensor"
            ops.define(f"{op}_value(Tensor input{also}) -> Tensor")
            ops.define(f"{op}_backward{gradient}")
            ops.impl(f"{op}_value", bind(compute, op), "CPU")
            ops.impl(f"{op}_backward", bind(differentiate, op), "CPU")


def bind(function: Callable[..., object], op: str) -> Callable[..., object]:
    return below_autograd(lambda *arguments: function(op, *arguments))


@pytest.fixture
def recording(kernel: ModuleType) -> ModuleType:
    return importlib.import_module(f"{kernel.__name__}._autograd")


@pytest.fixture(params=["in C++", "in Python"])
def way(
    request: pytest.FixtureRequest, recording: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> str:
    """What records."""
    if request.param == "in Python":
        leave_to_python(recording, monkeypatch)
    return request.param


def leave_to_python(recording: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "has_node", False)
    monkeypatch.setattr(recording, "MOST_RECORDED_BY_TORCH", -1)
    monkeypatch.setattr(recording, "by_kernel", lambda x: True)


def make_layer(kernel: ModuleType, name: str) -> torch.nn.Module:
    layer = getattr(kernel.layers, name)()
    layer.threshold = 0.25
    return layer


@pytest.mark.parametrize("name", LAYERS)
def test_the_node_is_what_records_every_layer(
    kernel: ModuleType, asked: list[str], name: str
) -> None:
    x = draw(3, 8)
    y = make_layer(kernel, name)(x)
    assert y.grad_fn.name() == f"{ID}::{LAYERS[name]}_backward"
    asked.clear()
    y.sum().backward()
    assert asked == [LAYERS[name]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_the_function_in_python_bit_by_bit(
    kernel: ModuleType,
    recording: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(1)
    layer, x = make_layer(kernel, name), draw(5, 12, dtype=dtype)
    dy = torch.randn_like(layer(x))
    found = [layer(x), *torch.autograd.grad(layer(x), x, dy)]
    leave_to_python(recording, monkeypatch)
    y = layer(x)
    assert "Recorder" in type(y.grad_fn).__name__
    for a, b in zip(found, (y, *torch.autograd.grad(y, x, dy)), strict=True):
        assert a.dtype == b.dtype == dtype
        assert torch.equal(a, b)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", LAYERS)
def test_first_and_second_derivatives_are_right(kernel: ModuleType, name: str) -> None:
    torch.manual_seed(2)
    layer, x = make_layer(kernel, name), draw(3, 6)
    assert torch.autograd.gradcheck(layer, x)
    assert torch.autograd.gradgradcheck(layer, x)


@pytest.mark.usefixtures("way")
def test_a_penalty_on_the_gradient_of_a_plain_sum_is_not_forgotten(
    kernel: ModuleType, asked: list[str]
) -> None:
    """The gradient that comes in needs none itself: what was saved does."""
    x = draw(2, 8)
    asked.clear()
    (first,) = torch.autograd.grad(make_layer(kernel, "Silu")(x).sum(), x, create_graph=True)
    assert not asked
    (found,) = torch.autograd.grad(first.square().sum(), x)
    (first,) = torch.autograd.grad(torch.nn.functional.silu(x).sum(), x, create_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(first.square().sum(), x)[0])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", TWO)
def test_gradients_may_be_many_and_have_tangents(kernel: ModuleType, name: str) -> None:
    x = draw(3, 8)
    y = make_layer(kernel, name)(x)
    check_many_gradients((y,), (x,))
    check_tangent_of_gradient((y,), x)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", TWO)
def test_it_keeps_its_input_and_nothing_else(kernel: ModuleType, name: str) -> None:
    x = draw(3, 8)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        make_layer(kernel, name)(x)
    assert [t.data_ptr() for t in kept] == [x.data_ptr()]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", TWO)
def test_what_is_kept_may_be_kept_elsewhere(kernel: ModuleType, name: str) -> None:
    check_kept_elsewhere(make_layer(kernel, name), draw(3, 8))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("shape", [(0, 8), (3, 0)], ids=str)
def test_nothing_has_a_gradient_of_nothing(kernel: ModuleType, shape: tuple[int, int]) -> None:
    x = draw(*shape)
    for name in TWO:
        for again in (False, True):
            y = make_layer(kernel, name)(x)
            assert torch.autograd.grad(y.sum(), x, create_graph=again)[0].shape == shape


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", TWO)
def test_graphs_are_kept_freed_and_refused_as_of_any_op(kernel: ModuleType, name: str) -> None:
    x = draw(3, 8)
    y = make_layer(kernel, name)(x)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(y.sum(), x)[0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y.sum(), x)


@pytest.mark.usefixtures("way")
def test_what_was_changed_in_place_is_found_and_results_may_be(kernel: ModuleType) -> None:
    layer, x = make_layer(kernel, "Silu"), draw(3, 8)
    h = x * 1
    y = layer(h)
    h.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = layer(x)
    y[0] = 0
    y.mul_(3)
    (found,) = torch.autograd.grad(y.sum(), x)
    own = torch.nn.functional.silu(x)
    torch.testing.assert_close(found, torch.autograd.grad(3 * own[1:].sum(), x)[0])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(kernel: ModuleType, reentrant: bool) -> None:
    layers, x = [make_layer(kernel, name) for name in TWO], draw(3, 8)

    def block(x: torch.Tensor) -> torch.Tensor:
        return layers[1](layers[0](x))

    expected = torch.autograd.grad(block(x).sum(), x)
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert torch.equal(x.grad, expected[0])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", TWO)
def test_nothing_is_recorded_where_nothing_is_wanted(kernel: ModuleType, name: str) -> None:
    layer, x = make_layer(kernel, name), draw(3, 8)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not layer(x).requires_grad
    assert layer(x.detach()).grad_fn is None


@pytest.mark.usefixtures("way")
def test_hooks_and_accumulated_gradients(kernel: ModuleType) -> None:
    x = draw(3, 8)
    seen: list[str] = []
    y = make_layer(kernel, "SiluAndMul")(x)
    y.register_hook(lambda dy: seen.append("y"))
    y.grad_fn.register_hook(lambda outputs, inputs: seen.append("node"))
    x.register_hook(lambda dx: dx * 2)
    x.register_post_accumulate_grad_hook(lambda x: seen.append("x"))
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    assert seen == ["y", "node", "x"] * 2
    (once,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(x.grad, 2 * once)


@pytest.mark.usefixtures("way")
def test_a_gradient_flows_through_out_whose_op_records_nothing(kernel: ModuleType) -> None:
    x, out = draw(3, 8), draw(3, 8, grad=False)
    kernel.silu(out, x)
    (found,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(torch.nn.functional.silu(x).sum(), x)[0])
    kernel.ops.silu(out := torch.empty(3, 8, dtype=torch.float64), x.detach())
    assert out.grad_fn is None


def test_anomalies_are_told_by_the_name_of_the_node(kernel: ModuleType) -> None:
    with torch.autograd.set_detect_anomaly(True):
        y = make_layer(kernel, "Silu")(draw(3, 8))
    nan = torch.full_like(y, float("nan"))
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="silu_backward"),
        pytest.raises(RuntimeError, match="silu_backward' returned nan values in its 0th"),
    ):
        y.backward(nan)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("grad", [True, False])
def test_forward_mode_is_refused_in_words(kernel: ModuleType, grad: bool) -> None:
    layer, x = make_layer(kernel, "SiluAndMul"), draw(3, 8, grad=grad)
    message = "silu_and_mul: input has a tangent"
    with pytest.raises(NotImplementedError, match=message):
        torch.func.jvp(layer, (x,), (torch.ones_like(x),))
    with forward_ad.dual_level():
        layer(x)
        with pytest.raises(NotImplementedError, match=message):
            layer(forward_ad.make_dual(x, torch.ones_like(x)))


@pytest.mark.usefixtures("way")
def test_what_the_op_refuses_is_said_in_words(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"silu_and_mul: .* must be even; found shape \(2, 7\)"):
        make_layer(kernel, "SiluAndMul")(draw(2, 7))


@pytest.mark.usefixtures("way")
def test_transforms_are_right_or_refused(kernel: ModuleType) -> None:
    layer, x = make_layer(kernel, "Silu"), draw(4, 8)
    slopes = torch.func.vmap(torch.func.grad(lambda row: layer(row).sum()))(x.detach())
    (expected,) = torch.autograd.grad(torch.nn.functional.silu(x).sum(), x)
    torch.testing.assert_close(slopes, expected)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.func.grad(lambda x: make_layer(kernel, "SiluAndMul")(x).sum())(x)


def test_the_bare_op_is_found_by_transforms(kernel: ModuleType) -> None:
    x, op = draw(4, 8, grad=False), kernel.ops.silu_and_mul_value
    found = torch.func.grad(lambda x: op(x).square().sum())(x)
    own = torch.func.grad(lambda x: kernel.reference.silu_and_mul(x).square().sum())(x)
    torch.testing.assert_close(found, own)
    own = torch.func.jacrev(kernel.reference.silu_and_mul)(x)
    torch.testing.assert_close(torch.func.jacrev(op)(x), own)
    by_row = torch.func.vmap(torch.func.grad(lambda row: op(row).square().sum()))(x)
    torch.testing.assert_close(by_row, found)
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jacfwd(op)(x)


def test_a_subclass_that_knows_torchs_ops_alone_is_recorded_by_torch(kernel: ModuleType) -> None:
    class Known(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            assert ID not in str(function)
            return super().__torch_function__(function, types, args, kwargs)

    x = draw(3, 8)
    y = make_layer(kernel, "Silu")(x.as_subclass(Known))
    (found,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(
        found, torch.autograd.grad(make_layer(kernel, "Silu")(x).sum(), x)[0]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_gradients_are_those_of_the_formulas_in_python_bit_by_bit(
    kernel: ModuleType, name: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    layer = make_layer(kernel, name)
    x = (draw(9, 12) * 8).detach()
    x[0, 0], x[1, 1], x[2, 7] = 1e4, -1e4, float("nan")
    x = x.to(dtype).requires_grad_()
    dy = torch.randn_like(layer(x)).requires_grad_()
    options = (0.25,) if name == "FatreluAndMul" else ()
    (first,) = torch.autograd.grad(layer(x), x, dy, create_graph=True)
    exact = kernel.gradients.input_gradient(LAYERS[name], dy, x, *options)
    torch.testing.assert_close(first, exact, rtol=0, atol=0, equal_nan=True)
    weights = torch.randn_like(exact)
    for found, right in zip(
        torch.autograd.grad(first, (x, dy), weights),
        torch.autograd.grad(exact, (x, dy), weights),
        strict=True,
    ):
        torch.testing.assert_close(found, right, rtol=0, atol=0, equal_nan=True)


def test_opcheck(kernel: ModuleType) -> None:
    torch.library.opcheck(kernel.ops.silu_and_mul_value, (draw(4, 8),))
    torch.library.opcheck(kernel.ops.fatrelu_and_mul_value, (draw(4, 8), 0.25))


@pytest.mark.usefixtures("way")
def test_a_backward_that_is_compiled(kernel: ModuleType) -> None:
    layers, x = [make_layer(kernel, name) for name in TWO], draw(3, 8)
    with compiled_backward():
        for _ in range(2):
            check_compiled(lambda: layers[1](layers[0](x * 2)), [x])


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_backwards_differ_by_op_and_options(kernel: ModuleType, dynamic: bool) -> None:
    """One graph of the compiler serves no other op or option than its own."""
    with compiled_backward(dynamic):
        for rows in (2, 5):
            for name, threshold in (
                ("FatreluAndMul", 0.0),
                ("FatreluAndMul", 0.5),
                ("SiluAndMul", 0.0),
                ("MulAndSilu", 0.0),
            ):
                layer, x = make_layer(kernel, name), draw(rows, 8)
                layer.threshold = threshold
                check_compiled(lambda: layer(x * 2), [x])  # noqa: B023


@pytest.mark.parametrize("name", TWO)
def test_training_compiles_into_one_graph_by_the_function_in_python(
    kernel: ModuleType, name: str
) -> None:
    layer, x = make_layer(kernel, name), draw(3, 8, dtype=torch.float32)
    compiled = torch.compile(lambda x: layer(x * 2) + 1, fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(layer(x * 2).sum(), x)[0])


def test_threads_share_a_graph(kernel: ModuleType) -> None:
    x, layer = draw(16, 32), make_layer(kernel, "Silu")
    differentiate_from_threads(layer(x * 1), x)
    release_from_threads(lambda: layer(x * 1), x)


def test_long_chains_are_freed_without_a_deep_stack(kernel: ModuleType) -> None:
    y, layer = draw(1, 4), make_layer(kernel, "Silu")
    for _ in range(50_000):
        y = layer(y)
    del y


def test_a_graph_that_is_gone_leaves_nothing_behind(kernel: ModuleType) -> None:
    y = make_layer(kernel, "SiluAndMul")(draw(3, 8))
    kept = weakref.ref(y)
    y.sum().backward()
    del y
    gc.collect()
    assert kept() is None
