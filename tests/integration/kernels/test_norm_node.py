"""The node of autograd of triton-layer-norm in C++, compiled for the torch that is here, over ops that a CPU has.

The ops stand in plain torch, so that all of autograd that a user could notice is tried without a GPU. Budget:
ninety seconds on two cores.
"""

# ruff: noqa: PLR0917  (the arguments of a norm, in the order of its ops)
from __future__ import annotations

import gc
import shutil
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

PROJECT = Path(__file__).parents[3] / "kernels-community" / "triton-layer-norm"
ID = "_norm_node_on_a_cpu"
EPS = 1e-5
NORM = "(Tensor x, Tensor? weight, Tensor? bias, float eps, bool is_rms) -> Tensor"
ADD_NORM = (
    "(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps, bool is_rms, bool wide_sum)"
    " -> (Tensor, Tensor)"
)
BACKWARD = (
    "(Tensor h, Tensor? weight, Tensor dy, Tensor? dsum, float eps, bool is_rms, bool wants_dweight,"
    " bool wants_dbias) -> (Tensor, Tensor?, Tensor?)"
)
Recorder = Callable[..., Any]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = PROJECT / "csrc" / "node" / "norm_node.cpp"
    return compile_node(source.read_text(encoding="utf-8"), tmp_path_factory.mktemp("node"), ID)


@pytest.fixture(scope="module")
def asked() -> list[tuple[bool, bool]]:
    """Which sums over the rows each call of the op of the backward was asked for."""
    return []


@pytest.fixture(scope="module")
def kernel(library: Path, asked: list[tuple[bool, bool]]) -> Iterator[ModuleType]:
    """The kernel's own Python, over ops in plain torch and the node."""
    folder = library.parent / "norm_node_kernel"
    shutil.copytree(PROJECT / "torch-ext" / "triton_layer_norm", folder)
    write_ops(folder, library, ID)
    ops = torch.library.Library(ID, "DEF")
    reference = load_module("norm_node_reference", folder / "reference.py")

    def norm(x, weight, bias, eps, is_rms):
        return reference.norm(x, weight, bias, eps, is_rms=is_rms)

    def add_norm(x, residual, weight, bias, eps, is_rms, wide_sum):
        dtype = torch.promote_types(x.dtype, torch.float32) if wide_sum else x.dtype
        return reference.add_norm(x, residual, weight, bias, eps, is_rms=is_rms, sum_dtype=dtype)

    def backward(h, weight, dy, dsum, eps, is_rms, *wanted):
        assert dy.dtype == h.dtype
        assert weight is None or weight.dtype in (h.dtype, torch.float32)
        asked.append(wanted)
        dh, *sums = reference.norm_backward(h, weight, dy, dsum, eps, is_rms=is_rms)
        dtype = h.dtype if weight is None else weight.dtype
        return dh, *(s.to(dtype) if wants else None for s, wants in zip(sums, wanted, strict=True))

    for name, schema, function in (
        ("cuda_norm", NORM, norm),
        ("cuda_recorded_norm", NORM, norm),
        ("cuda_add_norm", ADD_NORM, add_norm),
        ("cuda_recorded_add_norm", ADD_NORM, add_norm),
        ("cuda_norm_backward", BACKWARD, backward),
    ):
        ops.define(name + schema)
        ops.impl(name, below_autograd(function), "CPU")
    yield load_module("norm_node_kernel", folder / "__init__.py")
    for name in [name for name in sys.modules if name.startswith("norm_node_kernel")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def compiled(kernel: ModuleType) -> ModuleType:
    return sys.modules[f"{kernel.__name__}._compiled"]


@pytest.fixture(params=["in C++", "in Python"])
def way(request: pytest.FixtureRequest, compiled: ModuleType) -> tuple[Recorder, Recorder]:
    """What records a norm, and one with a residual."""
    torch.manual_seed(0)
    if request.param == "in Python":
        return compiled.in_python
    if request.param == "with Triton":
        return with_triton(compiled.__package__, request.getfixturevalue("monkeypatch"))
    return compiled.record_norm, compiled.record_add_norm


def with_triton(package: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Recorder, Recorder]:
    """Return what records the forward of Triton, over kernels in plain torch."""
    recording, launch, reference = (
        sys.modules[f"{package}.{name}"] for name in ("_autograd", "_launch", "reference")
    )

    def backward(h, weight, dy, dsum, eps, *, is_rms, dweight_dtype, dbias_dtype):
        dh, *sums = reference.norm_backward(h, weight, dy, dsum, eps, is_rms=is_rms)
        dtypes = (dweight_dtype, dbias_dtype)
        return dh, *(s.to(t) if t else None for s, t in zip(sums, dtypes, strict=True))

    def plan(is_rms: bool) -> SimpleNamespace:
        norm, add_norm = (partial(f, is_rms=is_rms) for f in (reference.norm, reference.add_norm))
        return SimpleNamespace(
            is_rms=is_rms,
            norm=norm,
            add_norm=lambda *inputs: add_norm(*inputs, sum_dtype=inputs[0].dtype),
        )

    monkeypatch.setattr(launch, "backward", below_autograd(backward))
    return (
        lambda x, weight, bias, eps, is_rms: recording.norm(x, weight, bias, plan(is_rms), eps),
        lambda *inputs: recording.add_norm(plan(inputs[5]), inputs[4], *inputs[:4]),
    )


every_way = pytest.mark.parametrize("way", ["in C++", "in Python", "with Triton"], indirect=True)


@pytest.fixture
def norm(way: tuple[Recorder, Recorder]) -> Recorder:
    return way[0]


@pytest.fixture
def add_norm(way: tuple[Recorder, Recorder]) -> Recorder:
    return way[1]


def test_the_node_is_what_records(kernel: ModuleType, compiled: ModuleType) -> None:
    assert compiled.has_node
    x, weight = draw(3, 8), draw(8)
    assert compiled.record_norm(x, weight, None, EPS, True).grad_fn.name() == "NormBackward"
    y, total = compiled.record_add_norm(x, x, weight, None, EPS, True, False)
    assert y.grad_fn is total.grad_fn
    assert y.grad_fn.name() == "AddNormBackward"
    assert (y.output_nr, total.output_nr) == (0, 1)


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gradients_are_those_of_the_function_in_python_bit_by_bit(
    compiled: ModuleType, dtype: torch.dtype, is_rms: bool
) -> None:
    torch.manual_seed(1)
    for weights, grads in product(
        ((None, None), (dtype, None), (dtype, dtype), (None, dtype), (torch.float32,) * 2),
        product((True, False), repeat=4),
    ):
        kinds = (dtype, *weights, torch.float32 if grads[0] else dtype)
        shapes = ((2, 3, 16), (16,), (16,), (2, 3, 16))
        tensors = [
            None if kind is None else draw(*shape, dtype=kind, grad=grad)
            for kind, shape, grad in zip(kinds, shapes, grads, strict=True)
        ]
        x, weight, bias, residual = tensors
        for wide in (None, True, False):
            inputs = (x, weight, bias) if wide is None else (x, residual, weight, bias)
            leaves = [t for t in inputs if t is not None and t.requires_grad]
            if not leaves:
                continue
            found = []
            for norm, add_norm in (
                (compiled.record_norm, compiled.record_add_norm),
                compiled.in_python,
            ):
                if wide is None:
                    outputs = (norm(*inputs, EPS, is_rms),)
                else:
                    outputs = add_norm(*inputs, EPS, is_rms, wide)
                torch.manual_seed(2)
                dys = [torch.randn(y.shape).to(y.dtype) for y in outputs]
                found.append((*outputs, *torch.autograd.grad(outputs, leaves, dys)))
            for a, b, kind in zip(*found, [y.dtype for y in outputs + tuple(leaves)], strict=True):
                assert a.dtype == b.dtype == kind
                assert torch.equal(a, b)


@pytest.mark.parametrize("is_rms", [True, False], ids=["rms", "layer"])
def test_first_and_second_derivatives_are_right(
    norm: Recorder, add_norm: Recorder, is_rms: bool
) -> None:
    x, residual, weight, bias = draw(3, 6), draw(3, 6), draw(6), draw(6)
    cases: list[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = [
        (lambda x, weight, bias: norm(x, weight, bias, EPS, is_rms), (x, weight, bias)),
        (lambda x, weight: norm(x, weight, None, EPS, is_rms), (x, weight)),
        (lambda x, bias: norm(x, None, bias, EPS, is_rms), (x, bias)),
        (lambda x: norm(x, None, None, EPS, is_rms), (x,)),
        (lambda x: norm(x, None, None, EPS, is_rms), (draw(6),)),
        (
            lambda x, residual, weight: add_norm(x, residual, weight, None, EPS, is_rms, False),
            (x, residual, weight),
        ),
        (
            lambda x, residual, bias: add_norm(x, residual, None, bias, EPS, is_rms, False)[0],
            (x, residual, bias),
        ),
    ]
    for function, inputs in cases:
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


def test_a_penalty_on_the_gradient_of_a_plain_sum_is_not_forgotten(norm: Recorder) -> None:
    """The gradient that comes in needs none itself: what was saved does."""
    x, weight = draw(2, 8), draw(8)
    (first,) = torch.autograd.grad(norm(x, weight, None, EPS, True).sum(), x, create_graph=True)
    found = torch.autograd.grad(first.square().sum(), (x, weight))
    y = torch.nn.functional.rms_norm(x, (8,), weight, EPS)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(first.square().sum(), (x, weight)))


@every_way
def test_many_gradients_at_once_are_those_one_by_one(norm: Recorder, add_norm: Recorder) -> None:
    x, residual, weight, bias = draw(3, 8), draw(3, 8), draw(8), draw(8)
    both = add_norm(x, residual, weight, bias, EPS, True, False)
    check_many_gradients((norm(x, weight, bias, EPS, False),), (x, weight, bias))
    check_many_gradients(both, (x, residual, weight, bias))
    check_many_gradients(both[1:], (x, residual))


@every_way
def test_a_tangent_of_a_gradient_is_kept(norm: Recorder, add_norm: Recorder) -> None:
    x, residual, weight, bias = draw(3, 8), draw(3, 8), draw(8), draw(8)
    check_tangent_of_gradient((norm(x, weight, bias, EPS, False),), x)
    check_tangent_of_gradient(add_norm(x, residual, weight, None, EPS, True, False), x)


def test_a_tangent_is_refused_where_nothing_requires_a_gradient(
    norm: Recorder, add_norm: Recorder
) -> None:
    x, weight = draw(3, 8).detach(), draw(8).detach()
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match=r"forward[- ]mode"):
            norm(dual, weight, None, EPS, True)
        with pytest.raises(NotImplementedError, match=r"forward[- ]mode"):
            add_norm(x, dual, weight, None, EPS, True, False)


def test_it_keeps_its_inputs_or_the_sum_and_nothing_else(
    norm: Recorder, add_norm: Recorder
) -> None:
    x, residual, weight, bias = draw(3, 8), draw(3, 8), draw(8), draw(8)
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        norm(x, weight, bias, EPS, True)
        assert {t.data_ptr() for t in kept} == {x.data_ptr(), weight.data_ptr()}
        kept.clear()
        _, total = add_norm(x, residual, weight, bias, EPS, True, False)
    assert {t.data_ptr() for t in kept} == {total.data_ptr(), weight.data_ptr()}


def test_sums_that_nobody_wants_are_not_asked_for(
    compiled: ModuleType, asked: list[tuple[bool, bool]]
) -> None:
    norm = compiled.record_norm
    cases = [
        ((draw(2, 4), draw(4), draw(4)), (0, 1, 2), (True, True)),
        ((draw(2, 4), draw(4), draw(4)), (0, 2), (False, True)),
        ((draw(2, 4), draw(4), draw(4)), (0,), (False, False)),
        ((draw(2, 4), draw(4, grad=False), draw(4)), (0, 2), (False, True)),
        ((draw(2, 4), None, draw(4)), (2,), (False, True)),
        ((draw(2, 4, grad=False), draw(4), None), (1,), (True, False)),
    ]
    for inputs, wanted, expected in cases:
        asked.clear()
        torch.autograd.grad(norm(*inputs, EPS, False).sum(), [inputs[i] for i in wanted])
        assert asked == [expected]


def test_one_of_two_results_alone_may_have_a_gradient(add_norm: Recorder) -> None:
    x, residual, weight = draw(3, 8), draw(3, 8), draw(8)
    y, total = add_norm(x, residual, weight, None, EPS, True, False)
    dsum = torch.randn_like(total)
    dx, dresidual, dweight = torch.autograd.grad(
        total, (x, residual, weight), dsum, retain_graph=True, allow_unused=True
    )
    assert dweight is None
    assert torch.equal(dx, dsum)
    assert torch.equal(dresidual, dsum)
    found = torch.autograd.grad(y, (x, residual, weight), dsum)
    h = (x + residual).detach().requires_grad_()
    own = torch.nn.functional.rms_norm(h, (8,), weight, EPS)
    dh, dweight = torch.autograd.grad(own, (h, weight), dsum)
    torch.testing.assert_close(found, (dh, dh, dweight))


def test_graphs_are_kept_freed_and_refused_as_of_any_op(norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)
    y = norm(x * 1, weight, None, EPS, True)
    first = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(y.sum(), x)[0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y.sum(), x)


def test_what_was_changed_in_place_is_found(norm: Recorder, add_norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)
    h = x * 1
    y = norm(h, weight, None, EPS, True)
    h.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y, total = add_norm(x, x, weight, None, EPS, True, False)
    total.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_what_a_view_was_changed_through_is_found_and_what_is_not_kept_may_be(
    norm: Recorder, add_norm: Recorder
) -> None:
    base, x, weight, bias = draw(6, 8), draw(3, 8), draw(8), draw(8)
    whole = base * 1
    y = norm(whole[::2], weight, None, EPS, True)
    whole.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    h, shift = x * 1, bias * 1
    y, _ = add_norm(h, x, weight, shift, EPS, False, False)
    (expected,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    h.mul_(2)
    shift.mul_(2)
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], expected)


def test_rows_in_any_layout_twice_or_not_at_all(norm: Recorder, add_norm: Recorder) -> None:
    """A row that stands for all, a tensor that is every argument, and no rows."""
    weight, bias = draw(8), draw(8)
    assert torch.autograd.gradcheck(
        lambda x: norm(x.expand(3, 8), weight, bias, EPS, True), (draw(1, 8),)
    )
    assert torch.autograd.gradcheck(lambda x: norm(x.t(), weight, bias, EPS, False), (draw(8, 3),))
    assert torch.autograd.gradcheck(lambda x: add_norm(x, x, x, x, EPS, False, False), (weight,))
    x = draw(0, 8)
    y, total = add_norm(x, x * 1, weight, bias, EPS, False, False)
    for again in (False, True):
        dx, *others = torch.autograd.grad(
            y.sum() + total.sum(), (x, weight, bias), retain_graph=True, create_graph=again
        )
        assert dx.shape == x.shape
        assert [each.tolist() for each in others] == [[0.0] * 8] * 2


def test_what_is_kept_may_be_kept_elsewhere(norm: Recorder, add_norm: Recorder) -> None:
    x, weight, bias = draw(3, 8), draw(8), draw(8)
    check_kept_elsewhere(lambda h: norm(h, weight, bias, EPS, False), x)
    check_kept_elsewhere(lambda h: sum(add_norm(h, h, weight, None, EPS, True, True)), x)


def test_a_result_may_be_changed_in_place(norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)
    y = norm(x, weight, None, EPS, True)
    y[0] = 0
    y.mul_(3)
    (found,) = torch.autograd.grad(y.sum(), x)
    own = torch.nn.functional.rms_norm(x, (8,), weight, EPS)
    torch.testing.assert_close(found, torch.autograd.grad(3 * own[1:].sum(), x)[0])


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(norm: Recorder, add_norm: Recorder, reentrant: bool) -> None:
    x, weight = draw(3, 8), draw(8)

    def block(x: torch.Tensor) -> torch.Tensor:
        y, total = add_norm(norm(x, weight, None, EPS, True), x, weight, None, EPS, True, False)
        return y * total

    expected = torch.autograd.grad(block(x).sum(), (x, weight))
    x.grad = weight.grad = None
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert torch.equal(x.grad, expected[0])
    assert torch.equal(weight.grad, expected[1])


@pytest.mark.parametrize("kept", [True, False])
def test_checkpoints_that_keep_what_a_policy_says(kernel: ModuleType, kept: bool) -> None:
    norm, add_norm = kernel.ops.cuda_recorded_norm, kernel.ops.cuda_recorded_add_norm
    x, weight = draw(3, 8), draw(8)
    seen: list[str] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y, total = add_norm(norm(x, weight, None, EPS, True), x, weight, None, EPS, True, False)
        return (y * total).sum()

    def choose(_context: object, op: object, *_: object, **__: object) -> CheckpointPolicy:
        seen.append(str(op))
        saved = ("recorded" in str(op)) is kept
        return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

    expected = torch.autograd.grad(block(x), (x, weight))
    contexts = partial(create_selective_checkpoint_contexts, choose)
    loss = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    assert all(map(torch.equal, torch.autograd.grad(loss, (x, weight)), expected))
    assert f"{ID}.cuda_recorded_norm.default" in seen


def test_a_backward_within_a_backward(norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                norm(x, weight, None, EPS, True).pow(3).sum().backward()
            return dy * x.grad

    (found,) = torch.autograd.grad(norm(Scaled.apply(x), weight, None, EPS, True).pow(3).sum(), x)
    (once,) = torch.autograd.grad(norm(x, weight, None, EPS, True).pow(3).sum(), x)
    assert torch.equal(found, once * once)


def test_nothing_is_recorded_where_nothing_is_wanted(norm: Recorder, add_norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = norm(x, weight, None, EPS, True)
            outputs = add_norm(x, x, weight, None, EPS, True, False)
        assert not any(t.requires_grad for t in (y, *outputs))
    assert not norm(x.detach(), weight.detach(), None, EPS, True).requires_grad
    with torch.inference_mode():
        inner = torch.randn(3, 8, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        norm(inner, weight, None, EPS, True)


def test_hooks_and_accumulated_gradients(norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)
    seen: list[str] = []
    y = norm(x, weight, None, EPS, True)
    y.register_hook(lambda dy: seen.append("y"))
    y.grad_fn.register_hook(lambda outputs, inputs: seen.append("node"))
    x.register_hook(lambda dx: dx * 2)
    weight.register_post_accumulate_grad_hook(lambda w: seen.append("weight"))
    for _ in range(2):
        y.sum().backward(retain_graph=True)
    assert seen == ["y", "node", "weight"] * 2
    (once,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    torch.testing.assert_close(x.grad, 2 * once)
    y.grad_fn.register_prehook(lambda dys: (dys[0] * 3,))
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 3 * once)


def test_two_results_are_retained_hooked_and_asked_for_by_their_edges(add_norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)
    both = add_norm(x * 1, x, weight, None, EPS, True, False)
    y, total = both
    counts: list[int] = []
    torch.autograd.graph.register_multi_grad_hook(both, lambda dys: counts.append(len(dys)))
    dy, dtotal = torch.autograd.grad(
        (y * total).sum(), [*map(torch.autograd.graph.get_gradient_edge, both)], retain_graph=True
    )
    assert torch.equal(dy, total)
    assert torch.equal(dtotal, y)
    counts.clear()
    y.retain_grad()
    total.retain_grad()
    (y * total).sum().backward()
    assert counts == [2]
    assert torch.equal(y.grad, total)
    assert torch.equal(total.grad, y)


def test_anomalies_are_told_by_the_name_of_the_node(compiled: ModuleType) -> None:
    with torch.autograd.set_detect_anomaly(True):
        y = compiled.record_norm(draw(3, 8), None, None, EPS, True)
    assert "record_norm" in "".join(y.grad_fn.metadata["traceback_"])
    nan = torch.full_like(y, float("nan"))
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="NormBackward"),
        pytest.raises(RuntimeError, match="'NormBackward' returned nan values in its 0th"),
    ):
        y.backward(nan)


def test_forward_mode_is_refused(norm: Recorder) -> None:
    import torch.autograd.forward_ad as forward

    x = draw(3, 8)
    with forward.dual_level(), pytest.raises(RuntimeError, match=r"forward|jvp"):
        norm(forward.make_dual(x, x), None, None, EPS, True)


def test_transforms_find_the_op(kernel: ModuleType) -> None:
    x, weight = draw(3, 8), draw(8)
    op = kernel.ops.cuda_recorded_norm
    found = torch.func.grad(lambda x: op(x, weight, None, EPS, True).square().sum())(x)
    own = torch.func.grad(
        lambda x: torch.nn.functional.rms_norm(x, (8,), weight, EPS).square().sum()
    )(x)
    torch.testing.assert_close(found, own)
    own = torch.func.jacrev(lambda x: torch.nn.functional.rms_norm(x, (8,), weight, EPS))(x)
    bare = partial(op, weight=weight, bias=None, eps=EPS, is_rms=True)
    torch.testing.assert_close(torch.func.jacrev(bare)(x), own)

    def cube(x: torch.Tensor) -> torch.Tensor:
        return bare(x).pow(3).sum()

    first = torch.func.grad(cube)
    (by_engine,) = torch.autograd.grad(cube(x), x, create_graph=True)
    torch.testing.assert_close(torch.func.vmap(first)(x), by_engine)
    (second,) = torch.autograd.grad(by_engine.square().sum(), x)
    torch.testing.assert_close(torch.func.grad(lambda x: first(x).square().sum())(x), second)
    for refused in (torch.func.hessian(cube), torch.func.jacfwd(bare)):
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            refused(x)


def test_opcheck(kernel: ModuleType) -> None:
    x, residual, weight, bias = draw(4, 8), draw(4, 8), draw(8), draw(8)
    for is_rms in (True, False):
        torch.library.opcheck(kernel.ops.cuda_recorded_norm, (x, weight, bias, EPS, is_rms))
        torch.library.opcheck(kernel.ops.cuda_recorded_norm, (x, None, None, EPS, is_rms))
        torch.library.opcheck(
            kernel.ops.cuda_recorded_add_norm, (x, residual, weight, None, EPS, is_rms, False)
        )


def test_a_backward_that_is_compiled(norm: Recorder, add_norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)

    def backward() -> tuple[torch.Tensor, ...]:
        y, total = add_norm(
            norm(x * 2, weight, None, EPS, False), x, weight, None, EPS, True, False
        )
        (y * total).sum().backward()
        found = x.grad, weight.grad
        x.grad = weight.grad = None
        return found

    expected = backward()
    for _ in range(2):
        with compiled_backward():
            found = backward()
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_backwards_differ_by_what_was_asked_for(
    compiled: ModuleType, asked: list[tuple[bool, bool]], dynamic: bool
) -> None:
    """One graph of the compiler serves no other options, inputs or wanted gradients than its own."""
    norm, add_norm = compiled.record_norm, compiled.record_add_norm
    weight, bias, half = draw(8), draw(8), draw(8, dtype=torch.float16)
    with compiled_backward(dynamic):
        for rows, inputs in product((2, 5), ((weight, None), (None, bias))):
            for options in ((EPS, True), (0.5, True), (EPS, False)):
                x = draw(rows, 8)
                leaves = [t for t in (x, *inputs) if t is not None]
                check_compiled(lambda: norm(x * 2, *inputs, *options), leaves)  # noqa: B023
        x = draw(3, 8)
        for wanted, expected in (
            ([x, weight, bias], (True, True)),
            ([x], (False, False)),
            ([weight], (True, False)),
            ([x, bias], (False, True)),
        ):
            asked.clear()
            check_compiled(lambda: norm(x, weight, bias, EPS, False), wanted)
            assert asked == [expected] * 2
        for wide, pick in product((True, False), (0, 1)):
            x, residual = draw(3, 8, dtype=torch.float16), draw(3, 8, dtype=torch.float32)
            check_compiled(
                lambda: add_norm(x * 1, residual, half, None, EPS, True, wide)[pick],  # noqa: B023
                [x, residual, half] if pick == 0 else [x, residual],
            )


def test_compiled_backwards_find_what_the_engine_finds(norm: Recorder) -> None:
    x, weight = draw(3, 8), draw(8)
    with compiled_backward():
        y = norm(x * 1, weight, None, EPS, True)
        y.sum().backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.sum().backward()
        h = x * 1
        y = norm(h, weight, None, EPS, True)
        h.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_bare_ops_are_differentiated_in_one_graph(kernel: ModuleType, dynamic: bool) -> None:
    norm, add_norm = kernel.ops.cuda_recorded_norm, kernel.ops.cuda_recorded_add_norm
    weight, bias = draw(8), draw(8)

    def run(x: torch.Tensor) -> torch.Tensor:
        y, total = add_norm(
            norm(x * 2, weight, bias, EPS, False), x, weight, None, EPS, True, False
        )
        return y * total

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (3, 4):
        x = draw(rows, 8)
        leaves = (x, weight, bias)
        found = torch.autograd.grad(compiled(x).sum(), leaves)
        torch.testing.assert_close(found, torch.autograd.grad(run(x).sum(), leaves))


def test_threads_share_a_graph(norm: Recorder) -> None:
    x, weight = draw(16, 32), draw(32)
    differentiate_from_threads(norm(x * 1, weight, None, EPS, True), x)
    release_from_threads(lambda: norm(x * 1, weight, None, EPS, True), x)


def test_long_chains_are_freed_without_a_deep_stack(norm: Recorder) -> None:
    y = draw(1, 4)
    for _ in range(50_000):
        y = norm(y, None, None, EPS, True)
    del y


def test_a_graph_that_is_gone_leaves_nothing_behind(norm: Recorder, add_norm: Recorder) -> None:
    x = draw(3, 8, grad=False)
    y, total = add_norm(norm(x, draw(8), None, EPS, True), x, draw(8), None, EPS, True, False)
    kept = [weakref.ref(t) for t in (y, total)]
    (y.sum() + total.sum()).backward()
    del y, total
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_the_functions_reach_the_node_at_every_size_and_torch_where_it_is_not(
    kernel: ModuleType, compiled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = sys.modules[f"{kernel.__name__}.functions"]
    monkeypatch.setattr(functions, "_is_plain", lambda x: type(x) is torch.Tensor)
    for rows in (1, 600):
        x, weight = draw(rows, 4096, dtype=torch.float16), draw(4096, dtype=torch.float16)
        y = kernel.rms_norm_fn(x, weight, eps=EPS)
        assert y.grad_fn.name() == "NormBackward"
        y, _ = kernel.layer_norm_fn(x, weight, weight, x, eps=EPS, prenorm=True)
        assert y.grad_fn.name() == "AddNormBackward"
    monkeypatch.setattr(compiled, "has_node", False)
    monkeypatch.setattr(compiled, "record_norm", compiled.in_python[0])
    assert "_Norm" in type(kernel.rms_norm_fn(x, weight, eps=EPS).grad_fn).__name__
    with pytest.raises(ValueError, match="weight must have shape"):
        kernel.rms_norm_fn(x, weight[:8])
