"""Kernelized models that are copied, pickled, hooked, wrapped, subclassed, or used by threads."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import subprocess
import sys
import threading
from types import MethodType

import pytest
import torch
from torch import nn

from kernels import (
    LocalLayerRepository,
    Mode,
    kernelize,
    report,
    unkernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
    use_kernelized_func,
)
from kernels.errors import KernelizeError


def runs(model):
    return [layer.runs for layer in report(model).layers]


@pytest.fixture
def kernelized(model, toy):
    with use_kernel_mapping({"Double": {"cpu": LocalLayerRepository(toy, layer_name="Double")}}):
        return kernelize(model, mode=Mode.INFERENCE)


def test_a_copy_runs_the_kernel_with_its_own_weights(write_kernel, x):
    source = (
        "from torch import nn\n\nclass Scale(nn.Module):\n"
        "    def forward(self, x):\n        return x * self.weight\n"
    )
    project = write_kernel(source, name="scale")
    model = nn.Sequential(Scaled())
    with use_kernel_mapping({"Scale": {"cpu": LocalLayerRepository(project, layer_name="Scale")}}):
        kernelize(model, mode=Mode.INFERENCE)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.fill_(5)
    assert runs(twin) == ["kernel"]
    torch.testing.assert_close(twin(x), 5 * x)
    torch.testing.assert_close(model(x), x)
    unkernelize(model)
    assert runs(twin) == ["kernel"]


def test_a_shallow_copy_is_told_and_can_be_mended(kernelized, x, calls):
    layer = kernelized.layers[0]
    twin = copy.copy(layer)
    [found] = report(twin).layers
    assert (found.runs, "shallow copy" in found.reason) == ("other", True)
    unkernelize(twin)
    assert (runs(twin), runs(layer)) == (["original"], ["kernel"])
    twin(x)
    assert calls == []
    again = copy.copy(layer)
    with use_kernel_mapping({}):
        kernelize(again, mode=Mode.INFERENCE, device="cpu")
    assert runs(again) == ["original"]


@use_kernel_forward_from_hub("Scale")
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, input):
        return input * self.weight


def test_an_unpickled_model_runs_its_own_forward_and_says_so(kernelized, x):
    twin = pickle.loads(pickle.dumps(kernelized))
    torch.testing.assert_close(twin(x), kernelized(x))
    assert runs(twin) == ["original", "original"]
    assert {layer.reason for layer in report(twin).layers} == {
        "its kernel did not come along (pickled, or taken out): kernelize the model again"
    }


def test_torch_saves_and_loads_a_kernelized_model(kernelized, x):
    buffer = io.BytesIO()
    torch.save(kernelized, buffer)
    buffer.seek(0)
    twin = torch.load(buffer, weights_only=False)
    torch.testing.assert_close(twin(x), kernelized(x))
    assert set(twin.state_dict()) == {"linear.weight", "linear.bias"}


def test_another_process_unpickles_a_kernelized_model_without_the_kernel(write_kernel, tmp_path):
    source = (
        "from torch import nn\n\nclass Norm(nn.Module):\n"
        "    has_backward = False\n    def forward(self, z):\n        return z\n"
    )
    project = write_kernel(source, name="norm")
    program = (
        "import pickle, sys\n"
        "model = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(sorted(model.__dict__), 'kernels' in sys.modules)\n"
    )
    # Of torch alone, so that nothing but the pickle could bring this package in.
    model = nn.LayerNorm(4)
    nn.LayerNorm.kernel_layer_name = "Norm"
    try:
        with use_kernel_mapping({
            "Norm": {"cpu": LocalLayerRepository(project, layer_name="Norm")}
        }):  # fmt: skip
            kernelize(model, mode=Mode.INFERENCE, strict=True)
        (tmp_path / "model.pickle").write_bytes(pickle.dumps(model))
    finally:
        del nn.LayerNorm.kernel_layer_name
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.pickle")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "_kernel_decision" in done.stdout
    assert done.stdout.strip().endswith("False")


# Functions -------------------------------------------------------------------------------------


@use_kernel_forward_from_hub("thrice")
def thrice(x):
    return 3 * x


@use_kernelized_func(thrice)
class CallsThrice(nn.Module):
    def forward(self, x):
        return thrice(x)


def test_a_copied_or_unpickled_model_calls_the_same_function(x, write_kernel):
    source = "def thrice(x):\n    return x + 2 * x\n"
    project = write_kernel("", name="thrice", init=source)
    kernel = LocalLayerRepository(project, layer_name="thrice")
    model = CallsThrice()
    try:
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert twin._kernel_funcs["thrice"] is thrice
            with use_kernel_mapping({"thrice": {"cpu": kernel}}):
                kernelize(twin, mode=Mode.INFERENCE, device="cpu", strict=True)
            assert runs(model) == ["kernel"]
            torch.testing.assert_close(model(x), 3 * x)
            unkernelize(model)
            assert runs(twin) == ["original"]
    finally:
        unkernelize(model)


def test_a_function_that_a_module_holds_is_copied_with_it(x):
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.fn = thrice

        def forward(self, x):
            return self.fn(x)

    twin = copy.deepcopy(Holds())
    assert twin.fn is not thrice
    torch.testing.assert_close(twin(x), 3 * x)


def test_a_function_without_a_name_to_find_it_by_cannot_be_pickled():
    @use_kernel_forward_from_hub("local")
    def local(x):
        return x

    with pytest.raises(ValueError, match=r"local cannot be pickled: like any function"):
        pickle.dumps(local)


# Hooks and wrappers ----------------------------------------------------------------------------


def test_hooks_still_run(kernelized, x, calls):
    seen = []
    layer = kernelized.layers[0]
    layer.register_forward_pre_hook(lambda *_: seen.append("before"))
    layer.register_forward_hook(lambda *_: seen.append("after"))
    kernelized(x)
    assert seen == ["before", "after"]
    assert calls == ["Double", "Double"]


def hook_like_accelerate(module, seen):
    """Do what accelerate's ``add_hook_to_module`` does to a module."""
    old = module.forward
    module._hf_hook, module._old_forward = object(), old

    def new_forward(self, *args, **kwargs):
        seen.append("moved")
        return self._old_forward(*args, **kwargs)

    module.forward = functools.update_wrapper(functools.partial(new_forward, module), old)


@pytest.mark.parametrize("order", ["hooked first", "kernelized first"])
def test_hooks_of_accelerate_stay_around_the_kernel(model, x, toy, calls, order):
    seen: list[str] = []
    mapping = {"Double": {"cpu": LocalLayerRepository(toy, layer_name="Double")}}
    steps = [
        lambda: [hook_like_accelerate(layer, seen) for layer in model.layers],
        lambda: kernelize(model, mode=Mode.INFERENCE),
    ]
    with use_kernel_mapping(mapping):
        for step in steps if order == "hooked first" else reversed(steps):
            step()
    expected = 4 * model.linear(x)
    torch.testing.assert_close(model(x), expected)
    assert seen == ["moved"] * 2
    assert calls == ["Double"] * 2
    assert runs(model) == ["kernel", "kernel"]
    unkernelize(model)
    torch.testing.assert_close(model(x), expected)
    assert (len(seen), len(calls)) == (4, 2)


def test_a_forward_that_somebody_else_replaced_stays(model, x, toy, calls):
    layer = model.layers[0]
    layer.forward = MethodType(lambda self, x: 10 * x, layer)
    with use_kernel_mapping({"Double": {"cpu": LocalLayerRepository(toy, layer_name="Double")}}):
        kernelize(model, mode=Mode.INFERENCE)
    assert runs(model) == ["other", "kernel"]
    torch.testing.assert_close(layer(x), 10 * x)
    unkernelize(model)
    torch.testing.assert_close(layer(x), 10 * x)
    assert "something else has replaced its forward" in str(report(model))


def test_a_wrapped_model_is_kernelized_inside(model, x, toy, calls):
    class Wrapper(nn.Module):
        """As DistributedDataParallel holds a model."""

        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return self.module(x)

    wrapped = Wrapper(model)
    with use_kernel_mapping({"Double": {"cpu": LocalLayerRepository(toy, layer_name="Double")}}):
        kernelize(wrapped, mode=Mode.INFERENCE)
    wrapped(x)
    assert calls == ["Double", "Double"]
    assert report(wrapped).layers[0].path == "module.layers.0"


def test_replicas_of_data_parallel_run_the_kernel_with_their_own_weights(write_kernel, x):
    source = (
        "from torch import nn\n\nclass Scale(nn.Module):\n"
        "    def forward(self, x):\n        return x * self.weight\n"
    )
    project = write_kernel(source, name="replicated")
    layer = Scaled()
    with use_kernel_mapping({"Scale": {"cpu": LocalLayerRepository(project, layer_name="Scale")}}):
        kernelize(layer, mode=Mode.INFERENCE, strict=True)
    # What torch.nn.parallel.replicate does for each GPU.
    replica = layer._replicate_for_data_parallel()
    replica.weight = torch.full((4,), 9.0)
    torch.testing.assert_close(replica(x), 9 * x)
    assert runs(replica) == ["kernel"]
    again = replica._replicate_for_data_parallel()
    assert again.forward.__self__ is again
    torch.testing.assert_close(layer(x), x)
    unkernelize(layer)
    assert layer._replicate_for_data_parallel().forward.__func__ is Scaled.forward
    assert pickle.loads(pickle.dumps(layer)).weight.shape == (4,)


def test_a_class_that_is_exchanged_afterwards_keeps_the_kernel(kernelized, x, calls):
    """As fully_shard and parametrize do: a subclass made for one layer."""
    layer = kernelized.layers[0]
    layer.__class__ = type("Sharded", (type(layer),), {})
    layer(x)
    assert calls == ["Double"]
    unkernelize(kernelized)
    layer(x)
    assert calls == ["Double"]


# Subclasses ------------------------------------------------------------------------------------


def test_a_subclass_with_another_forward_is_not_replaced(model, x, toy, calls):
    base = type(model.layers[0])

    class Triple(base):
        def forward(self, x):
            return 3 * x

    class Same(base):
        pass

    @use_kernel_forward_from_hub("Double")
    class Marked(base):
        def forward(self, x):
            return x * 2

    model.layers = nn.ModuleList([Triple(), Same(), Marked()])
    with use_kernel_mapping({"Double": {"cpu": LocalLayerRepository(toy, layer_name="Double")}}):
        kernelize(model, mode=Mode.INFERENCE)
    assert runs(model) == ["original", "kernel", "kernel"]
    assert "Triple has a forward of its own" in report(model).layers[0].reason
    torch.testing.assert_close(model.layers[0](x), 3 * x)
    with (
        use_kernel_mapping({"Double": {"cpu": LocalLayerRepository(toy, layer_name="Double")}}),
        pytest.raises(KernelizeError, match="Triple has a forward of its own"),
    ):
        kernelize(nn.Sequential(Triple()), mode=Mode.INFERENCE, device="cpu", strict=True)


# Names, threads, modes -------------------------------------------------------------------------


def test_callers_may_name_the_argument_as_the_original_does(x, write_kernel):
    source = (
        "from torch import nn\n\nclass Scale(nn.Module):\n"
        "    def forward(self, hidden_states):\n        return hidden_states * self.weight * 7\n"
    )
    project = write_kernel(source, name="names")
    model = nn.Sequential(Scaled())
    with use_kernel_mapping({"Scale": {"cpu": LocalLayerRepository(project, layer_name="Scale")}}):
        kernelize(model, mode=Mode.INFERENCE)
    torch.testing.assert_close(model[0](input=x), 7 * x)
    torch.testing.assert_close(model[0](x), 7 * x)


def test_train_and_eval_change_nothing_but_are_told(kernelized, x):
    assert "in training mode, but was kernelized for INFERENCE" in str(report(kernelized))
    kernelized.eval()
    assert "training mode" not in str(report(kernelized))
    kernelized.train()
    kernelized(x).sum().backward()
    assert runs(kernelized) == ["kernel", "kernel"]
    assert kernelized.linear.weight.grad is not None


def test_many_threads_kernelize_many_models(toy, model, x):
    failures = []
    start = threading.Barrier(8)

    def work(layer):
        own = copy.deepcopy(model)
        expected = own(x)
        start.wait()
        try:
            for _ in range(20):
                mapping = {"Double": {"cpu": LocalLayerRepository(toy, layer_name=layer)}}
                with use_kernel_mapping(mapping):
                    kernelize(own, mode=Mode.INFERENCE, strict=True)
                torch.testing.assert_close(own(x), expected)
                assert {each.kernel.rpartition(":")[2] for each in report(own).layers} == {layer}
                unkernelize(own)
        except BaseException as err:
            failures.append(err)
            raise

    layers = ["Double", "OnlyEager"] * 4
    threads = [threading.Thread(target=work, args=(layer,)) for layer in layers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
