"""What a model runs after kernelize: kernels, its own forwards, or what it ran before an error."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from kernels import (
    KernelizeFallback,
    LocalLayerRepository,
    Mode,
    kernelize,
    register_kernel_mapping,
    replace_kernel_forward_from_hub,
    report,
    unkernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
    use_kernelized_func,
)
from kernels.errors import KernelizeError, NotAKernelError

COMPILED = Mode.INFERENCE | Mode.TORCH_COMPILE


def mapped(toy, layer="Double", *, name="Double", **more):
    return {name: {"cpu": LocalLayerRepository(toy, layer_name=layer), **more}}


def runs(model):
    return [layer.runs for layer in report(model).layers]


def reasons(model):
    return {layer.reason for layer in report(model).layers}


def test_the_decorator_alone_changes_nothing(model, x):
    assert "forward" not in model.layers[0].__dict__
    assert type(model.layers[0]).forward.__name__ == "forward"
    assert runs(model) == ["original", "original"]
    assert reasons(model) == {"the model was not kernelized"}
    torch.testing.assert_close(model(x), 4 * model.linear(x))


def test_the_layers_run_the_kernel(model, x, toy, calls):
    expected = model(x)
    register_kernel_mapping(mapped(toy))
    assert kernelize(model, mode=Mode.INFERENCE) is model
    torch.testing.assert_close(model(x), expected)
    assert calls == ["Double", "Double"]
    assert runs(model) == ["kernel", "kernel"]


def test_the_original_comes_back(model, x, toy, calls):
    with use_kernel_mapping(mapped(toy)):
        kernelize(model, mode=Mode.INFERENCE)
    unkernelize(model)
    model(x)
    assert calls == []
    assert all("forward" not in layer.__dict__ for layer in model.layers)
    assert reasons(model) == {"the model was not kernelized"}


def test_kernelizing_again_follows_the_mapping_of_then(model, x, toy, calls):
    with use_kernel_mapping(mapped(toy)):
        kernelize(kernelize(model, mode=Mode.INFERENCE), mode=Mode.INFERENCE)
    model(x)
    assert calls == ["Double", "Double"]
    with use_kernel_mapping(mapped(toy, "OnlyEager")):
        kernelize(model, mode=Mode.INFERENCE)
        model(x)
        assert calls == ["Double", "Double", "OnlyEager", "OnlyEager"]
        kernelize(model, mode=COMPILED)
    assert runs(model) == ["original", "original"]
    kernelize(model, mode=Mode.INFERENCE)
    assert reasons(model) == {"no kernel is mapped to Double"}


def test_disabling_the_mapping_leaves_every_layer(model, x, toy, calls, monkeypatch):
    monkeypatch.setenv("DISABLE_KERNEL_MAPPING", "1")
    register_kernel_mapping(mapped(toy))
    kernelize(model, mode=Mode.INFERENCE)
    model(x)
    assert calls == []
    assert reasons(model) == {"DISABLE_KERNEL_MAPPING is set"}


def test_a_model_that_is_a_layer_itself(x, toy, calls):
    layer = next(iter(Alone().children())).layer
    with use_kernel_mapping(mapped(toy)):
        kernelize(layer, mode=Mode.INFERENCE, device="cpu")
    layer(x)
    assert calls == ["Double"]
    assert "(the model)" in str(report(layer))


class Alone(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.layer = Doubling()


@use_kernel_forward_from_hub("Double")
class Doubling(nn.Module):
    def forward(self, x):
        return x + x


# What kernels cannot do ------------------------------------------------------------------------


def test_a_kernel_without_backward_is_not_used_for_training(model, x, toy, calls):
    with use_kernel_mapping(mapped(toy, "NoBackward")):
        kernelize(model, mode=Mode.TRAINING)
        model(x).sum().backward()
        assert calls == []
        assert model.linear.weight.grad.abs().sum() > 0
        [reason] = reasons(model)
        assert reason.endswith("NoBackward has no backward")
        with pytest.raises(ValueError, match="has no backward"):
            kernelize(model, mode=Mode.TRAINING, use_fallback=False)


def test_nor_where_autograd_records_in_a_model_for_inference(model, x, toy, calls, warnings_of):
    with use_kernel_mapping(mapped(toy, "NoBackward")):
        kernelize(model, mode=Mode.INFERENCE)
    model.train()
    model(x).sum().backward()
    gradient = model.linear.weight.grad.clone()
    unkernelized = 4 * x.sum(0)
    torch.testing.assert_close(gradient, unkernelized.expand(4, 4))
    assert calls == []
    assert len(warnings_of()) == 1
    assert "torch.no_grad()" in warnings_of()[0]
    with torch.no_grad():
        model(x)
    assert calls == ["NoBackward", "NoBackward"]
    assert "the original where autograd records" in next(iter(reasons(model)))


class Nested(nn.Module):
    """A layer whose parameters are those of a layer in it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x)


class Add(nn.Module):
    def forward(self, terms):
        return terms[0] + terms[1]["x"]


class Scale(nn.Module):
    def forward(self, x, by):
        return x * by


DETACHED = """
from torch import nn

class Nested(nn.Module):
    has_backward = False
    can_torch_compile = True

    def forward(self, x):
        return nn.functional.linear(x, self.inner.weight, self.inner.bias).detach()

class Add(nn.Module):
    has_backward = False
    can_torch_compile = True

    def forward(self, terms):
        return (terms[0] + terms[1]["x"]).detach()

class Scale(nn.Module):
    has_backward = False
    can_torch_compile = True

    def forward(self, x, by):
        return (x * by).detach()
"""


@pytest.fixture
def without_backward(write_kernel):
    """Return a layer whose kernel, of the same name, has no backward."""
    project = write_kernel(DETACHED, name="detached")

    def make(kind):
        replace_kernel_forward_from_hub(kind, kind.__name__)
        kernel = LocalLayerRepository(project, layer_name=kind.__name__)
        with use_kernel_mapping({kind.__name__: {"cpu": kernel}}):
            return kernelize(kind(), mode=Mode.INFERENCE, device="cpu", strict=True)

    return make


def test_nor_where_a_layer_in_the_layer_has_the_parameters(without_backward, x):
    layer = without_backward(Nested)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.inner.weight.grad, x.sum(0).expand(4, 4))
    layer.requires_grad_(False)
    assert layer(x).grad_fn is None
    assert torch.compile(layer.requires_grad_(), backend="eager")(x).requires_grad


def test_nor_where_the_tensor_is_in_a_list_or_dictionary(without_backward, x):
    layer = without_backward(Add)
    recorded = torch.ones(3, 4, requires_grad=True)
    for terms in ([recorded, {"x": x}], (x, {"x": recorded})):
        assert layer(terms).requires_grad
    assert not layer([x, {"x": x}]).requires_grad


def test_nor_where_the_tensor_is_given_by_name(without_backward, x):
    layer = without_backward(Add)
    recorded = torch.ones(3, 4, requires_grad=True)
    assert layer(terms=[x, {"x": recorded}]).requires_grad
    assert not layer(terms=[x, {"x": x}]).requires_grad
    scale = without_backward(Scale)
    assert scale(x=recorded, by=x).requires_grad
    assert scale(x, by=recorded).requires_grad
    assert not scale(x, by=x).requires_grad


def test_a_parameter_that_a_layer_does_without_is_no_obstacle(without_backward, x):
    layer = without_backward(Scale)
    layer.register_parameter("bias", None)
    assert not layer(x, by=x).requires_grad
    layer.register_parameter("more", nn.Parameter(torch.ones(1)))
    assert layer(x, by=layer.more).requires_grad


def test_nor_for_derivatives_in_forward_mode(without_backward, x):
    layer = without_backward(Nested).requires_grad_(False)
    tangent = torch.ones_like(x)
    with torch.no_grad():
        _, derivative = torch.func.jvp(layer, (x,), (tangent,))
    torch.testing.assert_close(derivative, tangent @ layer.inner.weight.T)


def test_a_kernel_that_cannot_be_compiled_is_not_used_for_it(model, toy):
    with use_kernel_mapping(mapped(toy, "OnlyEager")):
        kernelize(model, mode=COMPILED)
        assert runs(model) == ["original", "original"]
        with pytest.raises(ValueError, match=r"cannot be compiled by torch\.compile"):
            kernelize(model, mode=COMPILED, use_fallback=KernelizeFallback.NONE)


def test_what_was_recorded_before_publishing_counts(model, write_kernel):
    proved = {"layers": {"Double": {"has_backward": False, "can_torch_compile": True}}}
    project = write_kernel(name="proved", extension=proved)
    with use_kernel_mapping(mapped(project)):
        kernelize(model, mode=Mode.TRAINING)
        assert runs(model) == ["original", "original"]
        kernelize(model, mode=COMPILED)
        assert runs(model) == ["kernel", "kernel"]


def test_a_kernel_mapped_for_what_it_cannot_do_is_an_error(model, toy):
    promised = {Mode.TRAINING: LocalLayerRepository(toy, layer_name="NoBackward")}
    with use_kernel_mapping({"Double": {"cpu": promised}}):
        with pytest.raises(ValueError, match="mapped for TRAINING, but it has no backward"):
            kernelize(model, mode=Mode.TRAINING)
        # Without autograd it does what is wanted.
        kernelize(model, mode=Mode.INFERENCE)
        assert runs(model) == ["kernel", "kernel"]


# What is missing -------------------------------------------------------------------------------


def test_a_kernel_that_is_not_there(model, x, tmp_path, warnings_of):
    with use_kernel_mapping(mapped(tmp_path / "nowhere")):
        with pytest.raises(NotAKernelError) as caught:
            kernelize(model, mode=Mode.INFERENCE)
        [note] = caught.value.__notes__
        assert note.startswith("The model was not kernelized:\n  layers.0: ")
        assert "\n  layers.1: " in note
        kernelize(model, mode=Mode.INFERENCE, use_fallback=KernelizeFallback.ALL)
    assert runs(model) == ["original", "original"]
    [reason] = reasons(model)
    assert "nowhere:Double cannot be loaded: There is no kernel at" in reason
    # In the table the kernel's name stands beside it.
    assert re.search(r"nowhere:Double +cannot be loaded", str(report(model)))
    assert len(warnings_of()) == 1
    assert warnings_of()[0].startswith("2 layers keep their own forward")


def test_a_repository_that_somebody_else_wrote(model, x):
    class Own:
        __hash__ = None

        def load(self):
            class Double(nn.Module):
                def forward(self, x):
                    return 2 * x

            return Double

        def __str__(self):
            return "ours:Double"

    expected = model(x)
    with use_kernel_mapping({"Double": {"cpu": Own()}}):
        kernelize(model, mode=Mode.INFERENCE, strict=True)
    torch.testing.assert_close(model(x), expected)
    assert report(model).layers[0].kernel == "ours:Double"
    Own.load = lambda self: "Double"
    with (
        use_kernel_mapping({"Double": {"cpu": Own()}}),
        pytest.raises(TypeError, match=r"load\(\) returned 'Double', not a class"),
    ):
        kernelize(model, mode=Mode.INFERENCE)


def test_a_kernel_that_fails_while_it_is_imported(model, write_kernel):
    broken = write_kernel("raise AssertionError('no accelerator')", name="broken")
    with use_kernel_mapping(mapped(broken)):
        with pytest.raises(AssertionError, match="no accelerator"):
            kernelize(model, mode=Mode.INFERENCE)
        kernelize(model, mode=Mode.INFERENCE, use_fallback=KernelizeFallback.ALL)
    assert "no accelerator" in next(iter(reasons(model)))


def test_a_layer_that_the_kernel_does_not_have(model, toy):
    words = r"did you mean 'Double'\? It has Double, NoBackward"
    with use_kernel_mapping(mapped(toy, "Dubble")), pytest.raises(ValueError, match=words):
        kernelize(model, mode=Mode.INFERENCE)


@pytest.mark.parametrize(
    ("mapping", "case", "words"),
    [
        ({}, KernelizeFallback.NO_LAYER, "no kernel is mapped to Double"),
        ({"cuda": ...}, KernelizeFallback.NO_DEVICE, "mapped for cuda, not for cpu"),
        (
            {"cpu": {Mode.INFERENCE: ...}},
            KernelizeFallback.NO_COMPATIBLE_MODE,
            "mapped for INFERENCE, not for TRAINING",
        ),
    ],
)
def test_every_case_of_fallback_can_be_refused(model, toy, mapping, case, words):
    kernel = LocalLayerRepository(toy, layer_name="Double")

    def fill(value):
        return kernel if value is ... else {key: fill(each) for key, each in value.items()}

    with use_kernel_mapping({"Double": fill(mapping)} if mapping else {}):
        kernelize(model, mode=Mode.TRAINING, use_fallback=case)
        assert words in next(iter(reasons(model)))
        with pytest.raises(KernelizeError, match=words) as caught:
            kernelize(model, mode=Mode.TRAINING, use_fallback=KernelizeFallback.ALL & ~case)
    assert [fault.where for fault in caught.value.faults] == ["layers.0", "layers.1"]


# Errors ----------------------------------------------------------------------------------------


def test_every_fault_is_told_and_nothing_is_changed(model, toy, write_kernel):
    model.other = Doubling()
    renamed = write_kernel(
        "from torch import nn\n\nclass Double(nn.Module):\n"
        "    def forward(self, x, scale):\n        return self.factor * x\n",
        name="renamed",
    )
    with use_kernel_mapping(mapped(toy)):
        kernelize(model, mode=Mode.INFERENCE)
    before = [layer.forward for layer in model.layers]
    with use_kernel_mapping(mapped(renamed)), pytest.raises(KernelizeError) as caught:
        kernelize(model, mode=Mode.INFERENCE)
    text = str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert text.count("needs an argument 'scale' that the layer does not have") == 3
    assert text.count("it needs factor of the layer, and ModelDouble has none") == 2
    assert text.count("it needs factor of the layer, and Doubling has none") == 1
    assert [layer.forward for layer in model.layers] == before


def test_a_clash_leaves_the_original_where_the_caller_allows_all(model, write_kernel, warnings_of):
    source = "from torch import nn\n\nclass Double(nn.Module):\n    def forward(self): ...\n"
    with use_kernel_mapping(mapped(write_kernel(source, name="clash"))):
        kernelize(model, mode=Mode.INFERENCE, use_fallback=KernelizeFallback.ALL)
    assert "does not fit: the kernel takes no argument 'x'" in next(iter(reasons(model)))
    assert len(warnings_of()) == 1


def test_strict_refuses_a_model_that_gets_no_kernel(model, toy):
    for_cuda = {"Double": {"cuda": LocalLayerRepository(toy, layer_name="Double")}}
    words = "0 of 2 layers get a kernel"
    with use_kernel_mapping(for_cuda), pytest.raises(KernelizeError, match=words) as caught:
        kernelize(model, mode=Mode.INFERENCE, strict=True)
    assert str(caught.value).count("Double is mapped for cuda, not for cpu") == 2
    with pytest.raises(KernelizeError, match="none is extensible"):
        kernelize(nn.Linear(2, 2), mode=Mode.INFERENCE, strict=True)
    with use_kernel_mapping(mapped(toy)):
        model.plain = Other()
        kernelize(model, mode=Mode.INFERENCE, strict=True)
    assert runs(model) == ["kernel", "kernel", "original"]


@use_kernel_forward_from_hub("Other")
class Other(nn.Module):
    def forward(self, x):
        return x


def test_wrong_arguments(model):
    with pytest.raises(ValueError, match=r"expected a torch\.nn\.Module, found \{\}"):
        kernelize({}, mode=Mode.INFERENCE)
    with pytest.raises(ValueError, match=r"expected Mode\.INFERENCE or Mode\.TRAINING"):
        kernelize(model, mode=Mode.FALLBACK)
    with pytest.raises(ValueError, match="found TORCH_COMPILE"):
        kernelize(model, mode=Mode.TORCH_COMPILE)
    with pytest.raises(ValueError, match="unsupported device type"):
        kernelize(model, mode=Mode.INFERENCE, device="gpu")
    with pytest.raises(ValueError, match="select: expected 'mapped' or 'measured'"):
        kernelize(model, mode=Mode.INFERENCE, select="fastest")
    with pytest.raises(ValueError, match="use_fallback"):
        kernelize(model, mode=Mode.INFERENCE, use_fallback="always")
    with pytest.raises(ValueError, match="neither parameters nor buffers"):
        kernelize(Doubling(), mode=Mode.INFERENCE)


# Functions -------------------------------------------------------------------------------------


@use_kernel_forward_from_hub("twice")
def double(x, factor=2):
    """Return x times the factor."""
    return x * factor


@use_kernelized_func(double)
class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return double(x)


def test_a_function_is_called_as_before(x):
    assert isinstance(double, nn.Module)
    assert double.__doc__ == "Return x times the factor."
    torch.testing.assert_close(double(x, factor=3), 3 * x)


def test_a_function_gets_a_kernel_by_the_layers_that_call_it(x, write_kernel):
    source = (
        "from torch import nn\n\nclass Twice(nn.Module):\n"
        "    def forward(self, x, factor=2):\n        return 100 * x\n"
    )
    project = write_kernel(source, name="twice")
    model = nn.Sequential(Calls(), Calls())
    try:
        with use_kernel_mapping(mapped(project, "Twice", name="twice")):
            kernelize(model, mode=Mode.INFERENCE)
        torch.testing.assert_close(model(x), 10_000 * x)
        [layer] = report(model).layers
        assert (layer.path, layer.runs, layer.users) == ("0.twice", "kernel", 2)
        assert "0.twice (function)" in str(report(model))
    finally:
        unkernelize(model)
    torch.testing.assert_close(model(x), 4 * x)


def test_a_function_of_a_kernel_stands_for_one(x, toy, monkeypatch):
    model = nn.Sequential(Calls())
    # twice(x) of the kernel has no factor, so it does not fit double(x, factor).
    words = "takes no argument 'factor'"
    named = mapped(toy, "twice", name="twice")
    with use_kernel_mapping(named), pytest.raises(TypeError, match=words):
        kernelize(model, mode=Mode.INFERENCE)

    @use_kernel_forward_from_hub("twice")
    def plain(x):
        return x + x

    @use_kernelized_func(plain)
    class CallsPlain(nn.Module):
        def forward(self, x):
            return plain(x)

    model = CallsPlain()
    with use_kernel_mapping(mapped(toy, "twice", name="twice")):
        kernelize(model, mode=Mode.INFERENCE, device="cpu", strict=True)
    torch.testing.assert_close(model(x), 2 * x)


def test_functions_that_a_class_names_itself_are_found(toy):
    function = use_kernel_forward_from_hub("Double")(lambda x: x)

    class Calls(nn.Module):
        _kernel_funcs = {"Double": function}  # noqa: RUF012 - as others write it

        def forward(self, x):
            return function(x)

    model = Calls()
    with use_kernel_mapping(mapped(toy)):
        kernelize(model, mode=Mode.INFERENCE, device="cpu", strict=True)
    assert model(torch.ones(1)).item() == 2


def test_a_wrapper_that_passes_names_on_has_no_functions_of_its_own():
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Calls()

        def __getattr__(self, name):
            inner = super().__getattr__("inner")
            return inner if name == "inner" else getattr(inner, name)

    [function] = report(Wrapper()).layers
    assert (function.path, function.users) == ("inner.twice", 1)


def test_only_marked_functions_can_be_named():
    with pytest.raises(ValueError, match=r"test_only_marked.* is not decorated"):
        use_kernelized_func(test_only_marked_functions_can_be_named)


# Classes of others -----------------------------------------------------------------------------


def test_a_class_of_somebody_else_and_a_condition(write_kernel):
    source = (
        "from torch import nn\n\nclass Norm(nn.Module):\n"
        "    def forward(self, input):\n        return input * 0 + self.eps\n"
    )

    class Norm(nn.LayerNorm):
        pass

    replace_kernel_forward_from_hub(Norm, "Norm", lambda layer: layer.eps < 1e-4)
    model = nn.Sequential(Norm(4, eps=1e-5), Norm(4, eps=1e-3), nn.LayerNorm(4))
    with use_kernel_mapping(mapped(write_kernel(source, name="norm"), "Norm", name="Norm")):
        kernelize(model, mode=Mode.INFERENCE)
    assert runs(model) == ["kernel", "original"]
    assert "the condition of its decorator excludes it" in reasons(model)
    torch.testing.assert_close(model[0](torch.randn(2, 4)), torch.full((2, 4), 1e-5))


def test_what_is_neither_class_nor_function_cannot_be_marked():
    with pytest.raises(TypeError, match="expected a class of layers or a function, found 3"):
        use_kernel_forward_from_hub("x")(3)
