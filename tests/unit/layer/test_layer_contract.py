"""What fits: the arguments of two forwards, and the attributes that one needs."""

from __future__ import annotations

import contextlib
import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kernels.layer.contract import (
    find_layer_faults,
    find_missing_attributes,
    find_renamed,
    find_signature_faults,
    read_attributes,
)


def forward(text):
    scope: dict[str, object] = {}
    exec(f"def forward(self, {text}): ...", scope)
    return scope["forward"]


@pytest.mark.parametrize(
    ("kernel", "original"),
    [
        ("x", "x"),
        ("hidden_states", "x"),
        ("x", "input"),
        ("q, k, cos, sin, unsqueeze_dim=1", "q, k, cos, sin, unsqueeze_dim=1"),
        ("x, scale=None", "x"),
        ("x, *, scale=None", "x"),
        ("x, **more", "x"),
        ("*args, **kwargs", "x, mask=None, *, scale=1"),
        ("x, *, b=2, a=1", "x, *, a=1, b=2"),
        ("x, a=1", "x, *, a=1"),
        ("y, b, /", "x, a, /"),
        ("x, y=(1, 'a')", "x, y=(1, 'a')"),
    ],
)
def test_forwards_that_take_every_call_of_the_original(kernel, original):
    assert find_signature_faults(forward(kernel), forward(original)) == ()


@pytest.mark.parametrize(
    ("kernel", "original", "fault"),
    [
        ("x", "x, mask=None", "the kernel takes no argument 'mask'"),
        ("x, seq_idx=None", "x, mask=None", "argument 2 is 'seq_idx' in the kernel, 'mask'"),
        ("b, a", "a, b", "argument 1 is 'b' in the kernel, 'a' in the layer"),
        ("x, b=None, a=None", "x, a=None, b=None", "argument 2 is 'b' in the kernel"),
        ("x, mask", "x", "the kernel needs an argument 'mask' that the layer does not have"),
        ("x, *, mask", "x", "the kernel needs an argument 'mask'"),
        ("x, mask", "x, mask=None", "'mask' has no default in the kernel, None in the layer"),
        ("x, dim=2", "x, dim=1", "the default of 'dim' is 2 in the kernel, 1 in the layer"),
        ("x, dim=1", "x, dim=True", "the default of 'dim' is 1 in the kernel, True"),
        ("x, /", "x", "argument 'x' cannot be given by name in the kernel"),
        ("x", "x, **more", "the kernel takes no **more"),
        ("x", "x, *more", "the kernel takes no *more"),
        ("x", "x, *, scale", "the kernel takes no argument 'scale'"),
        ("x, *, scale=2", "x, *, scale=1", "the default of 'scale' is 2"),
    ],
)
def test_forwards_that_do_not(kernel, original, fault):
    faults = find_signature_faults(forward(kernel), forward(original))
    assert any(fault in each for each in faults), faults


def test_every_fault_is_found_at_once():
    faults = find_signature_faults(forward("a, c, d"), forward("a, b, e=1, f=2"))
    assert len(faults) == 3


NAMES = st.lists(st.sampled_from("abcd"), unique=True, max_size=4)


@given(NAMES, st.integers(0, 4), st.data())
def test_a_call_that_the_original_takes_never_fails(original, theirs, data):
    """Where nothing is found wrong, every call of the original works, arguments in their places."""
    # Of names drawn by themselves hardly any two forwards go together.
    alike = [original, ["other", *original[1:]], [*original, "more"]]
    kernel = data.draw(st.sampled_from(alike) | NAMES)
    ours = data.draw(st.just(theirs) | st.integers(0, 4))

    def write(names, defaults):
        first = len(names) - defaults
        return ", ".join(f"{n}='{n}0'" if i >= first else n for i, n in enumerate(names))

    kernel_forward, original_forward = (
        forward(write(kernel, ours)),
        forward(write(original, theirs)),
    )
    if find_signature_faults(kernel_forward, original_forward):
        return
    positional = data.draw(st.integers(0, len(original)))
    required = [
        name
        for name, each in inspect.signature(original_forward).parameters.items()
        if name != "self" and each.default is inspect.Parameter.empty
    ]
    keywords = {name: name for name in original[positional:] if name in required}
    renamed = find_renamed(kernel_forward, original_forward)
    bound = inspect.signature(kernel_forward).bind(
        None, *original[:positional], **{renamed.get(k, k): v for k, v in keywords.items()}
    )
    bound.apply_defaults()
    given_to = inspect.signature(original_forward).bind(None, *original[:positional], **keywords)
    given_to.apply_defaults()
    for name, value in given_to.arguments.items():
        assert bound.arguments[renamed.get(name, name)] == value


def test_only_the_first_argument_may_have_another_name():
    assert find_renamed(forward("hidden"), forward("x")) == {"x": "hidden"}
    assert find_renamed(forward("x"), forward("x")) == {}
    assert find_renamed(forward("y, /"), forward("x, /")) == {}
    assert find_renamed(forward("x=1"), forward("")) == {}
    assert find_renamed(forward(""), forward("x")) == {}


def test_functions_in_c_are_not_judged():
    assert find_signature_faults(torch.relu, forward("x")) == ()
    assert read_attributes(torch.relu) == (frozenset(), frozenset())


# Attributes ------------------------------------------------------------------------------------


class Kernel(nn.Module):
    def forward(self, x, flag=False):
        if self.switch:
            x = x + self.variance_epsilon
        y = self.scale(x) * self.weight.sum() + (self.left or self.right)
        self.stored = y
        z = self.stored if flag else self.bias
        f = lambda: self.never  # noqa: E731
        with torch.no_grad():
            z = z + self.inside
        try:
            z = z + self.perhaps
        except AttributeError:
            z = z + 1
        with contextlib.suppress(AttributeError):
            z = z + self.perhaps_too
        for each in self.items:
            z = z + each + self.per_item
        if flag:
            return [self.a for _ in self.b]
        return z + self.too_late + f()


def test_what_a_forward_reads_in_every_call_and_in_some():
    always, sometimes = read_attributes(Kernel.forward)
    assert always == {*("switch", "scale", "weight", "left", "inside", "items")}
    assert sometimes >= {*("variance_epsilon", "right", "bias", "never", "perhaps", "too_late")}
    assert "stored" not in always | sometimes


class Norm(nn.Module):
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, x):
        eps = self.__dict__.get("variance_epsilon")
        if eps is None:
            eps = self.eps if "eps" in self.__dict__ else self.variance_epsilon
        return x * self.weight + eps


def test_one_of_the_names_that_a_kernel_knows_must_be_there():
    layer = nn.LayerNorm(4)
    assert find_missing_attributes(Norm, layer) == ()
    del layer.eps
    assert find_missing_attributes(Norm, layer) == ("eps or variance_epsilon",)
    layer.variance_epsilon = 1e-5
    assert find_missing_attributes(Norm, layer) == ()

    class Undeclared(nn.Module):
        def forward(self, x, flag=False):
            return self.factor * x if flag else x

    assert find_missing_attributes(Undeclared, layer) == ()


def test_missing_attributes_are_named():
    layer = nn.LayerNorm(4)
    layer.switch = True

    class Needs(nn.Module):
        def forward(self, x):
            return x * self.weight + self.bias + self.training + self.epsilon + self.helper(x)

    assert find_missing_attributes(Needs, layer) == ("epsilon", "helper")


def test_a_forward_without_source_or_self_needs_nothing():
    scope: dict[str, object] = {}
    exec("def forward(self, x): return self.weight", scope)
    assert read_attributes(scope["forward"]) == (frozenset(), frozenset())
    assert read_attributes(lambda: None) == (frozenset(), frozenset())


def test_layers_that_can_stand_for_none():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = 2

    class Derived(Kernel):
        def forward(self, x):
            return super().forward(x)

    class Decorated(Kernel):
        @torch.no_grad()
        def forward(self, x):
            return [super(Decorated, self).forward(each) for each in x]

        def extra_repr(self):
            return super().extra_repr()

    class Named(Kernel):
        def forward(self, x):
            return Kernel.forward(self, x)

    assert "has an __init__ of its own" in find_layer_faults(Stateful)[0]
    assert "Derived calls super()" in find_layer_faults(Derived)[0]
    assert "Decorated calls super()" in find_layer_faults(Decorated)[0]
    assert find_layer_faults(Named) == ()
    assert find_layer_faults(Kernel) == ()
    assert "expected a subclass of torch.nn.Module" in find_layer_faults(dict)[0]
    assert "expected a subclass of torch.nn.Module" in find_layer_faults("Kernel")[0]
