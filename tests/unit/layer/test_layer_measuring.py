"""Measuring changes nothing but times, keeps apart what differs, and agrees with other processes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from kernels import (
    LocalLayerRepository,
    Mode,
    kernelize,
    report,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)
from kernels.layer import measured
from kernels.layer.binding import find_bound
from kernels.layer.device import DEVICE_TYPES
from kernels.layer.timings import Timing, TimingsFile

pytestmark = pytest.mark.usefixtures("few_rounds")


def test_measuring_disturbs_neither_random_numbers_nor_buffers_nor_gradients(write_kernel):
    source = (
        "import torch\nfrom torch import nn\n\nclass Noisy(nn.Module):\n"
        "    def forward(self, x):\n"
        "        self.count += 1\n        return x * self.weight + torch.rand(())\n"
    )
    kernel = LocalLayerRepository(write_kernel(source, name="noisy"), layer_name="Noisy")

    @use_kernel_forward_from_hub("Noisy")
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.register_buffer("count", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.count += 1
            return x * self.weight + torch.rand(())

    plain, model = Noisy(), Noisy()
    with use_kernel_mapping({"Noisy": {"cpu": kernel}}):
        kernelize(model, mode=Mode.TRAINING, select="measured")
    x = torch.randn(3, 4, requires_grad=True)
    results = []
    for each in (plain, model):
        torch.manual_seed(1)
        each(x).sum().backward()
        results.append(
            (x.grad.clone(), each.weight.grad.clone(), each.count.clone(), torch.rand(1))
        )
        x.grad = None
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_what_cannot_be_timed_runs_the_original_undecided(kernelized, shapes):
    model = kernelized()
    with torch.no_grad():
        model(torch.empty(0, 4))

        class Special(torch.Tensor):
            pass

        model(torch.randn(3, 4).as_subclass(Special))
        model(torch.eye(4).to_sparse())
        with pytest.raises(RuntimeError, match="both self and other to be nested"):
            model(torch.nested.nested_tensor([torch.ones(1, 4), torch.ones(2, 4)]))
    assert "no shape" in report(model).layers[0].reason
    torch.func.vmap(model)(torch.randn(2, 3, 4))
    assert shapes(model) == {}
    assert model[0].calls == 5


# What measuring must leave as it was -------------------------------------------------------------


@pytest.fixture
def measured_pair(write_kernel):
    """Return a function that kernelizes a class whose kernel has the same source."""

    def make(kind, source, *, mode=Mode.INFERENCE, name="pair"):
        project = write_kernel("import torch\nfrom torch import nn\n" + source, name=name)
        kernel = LocalLayerRepository(project, layer_name="Kernel")
        use_kernel_forward_from_hub(kind.__name__)(kind)
        with use_kernel_mapping({kind.__name__: {"cpu": kernel}}):
            return kernelize(kind(), mode=mode, device="cpu", select="measured", strict=True)

    return make


def test_what_a_layer_writes_to_is_written_once(measured_pair):
    class Update(nn.Module):
        def forward(self, x, state, *, seen):
            seen.append(1)
            state["sum"] += x
            return state["sum"]

    model = measured_pair(
        Update,
        """
class Kernel(nn.Module):
    def forward(self, x, state, *, seen):
        seen.append(1)
        state["sum"] += x
        return state["sum"]
""",
    )
    state, seen = {"sum": torch.zeros(4)}, []
    with torch.no_grad():
        model(torch.ones(4), state, seen=seen)
    assert state["sum"].tolist() == [1.0] * 4
    assert seen == [1]
    [layer] = report(model).layers
    assert len(layer.shapes) == 1


class Cache:
    """Something that only its owner can copy."""

    calls = 0


def test_what_cannot_be_copied_is_not_timed(measured_pair):
    class Cached(nn.Module):
        def forward(self, x, cache):
            cache.calls += 1
            return x

    source = "class Kernel(nn.Module):\n    def forward(self, x, cache):\n        1 / 0\n"
    model, cache = measured_pair(Cached, source), Cache()
    model(torch.ones(3), cache)
    assert cache.calls == 1
    [layer] = report(model).layers
    assert layer.shapes == ()
    assert layer.reason.startswith("the original: it is called with what cannot be copied")


def test_what_is_never_timed_is_found_out_once(measured_pair, monkeypatch):
    class Given(nn.Module):
        def forward(self, x, cache):
            return x

    source = "class Kernel(nn.Module):\n    def forward(self, x, cache):\n        return x\n"
    model, asked = measured_pair(Given, source), []
    ask = measured._why_not_timed
    monkeypatch.setattr(measured, "_why_not_timed", lambda call: asked.append(1) or ask(call))
    for _ in range(3):
        model(torch.ones(3), Cache())
    assert len(asked) == 1
    # What is in a list may be another thing next time.
    for cache in ([Cache()], [Cache()], [1]):
        model(torch.ones(3), cache)
    assert len(asked) == 4
    assert len(report(model).layers[0].shapes) == 1


def test_buffers_of_layers_inside_and_what_a_layer_keeps_stay(measured_pair):
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("last", torch.zeros(()))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            self.last = x.sum()
            self.cache = x
            return self.norm(x)

    source = """
class Kernel(nn.Module):
    def forward(self, x):
        self.calls += 1
        self.last = x.sum()
        self.cache = x
        return self.norm(x)
"""
    model = measured_pair(Normed, source, mode=Mode.TRAINING).train()
    last, x = model.last, torch.randn(5, 4)
    model(x)
    assert model.norm.num_batches_tracked == 1
    assert model.calls == 1
    assert model.last == x.sum()
    assert last == 0
    assert model.cache is x
    assert len(report(model).layers[0].shapes) == 1


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("called", [True, False])
def test_buffers_are_put_back_in_inference_mode_and_outside(kernelized, shapes, made, called):
    with torch.inference_mode(made):
        model = kernelized()
        model[0].register_buffer("last", torch.zeros(2))
    with torch.inference_mode(called), torch.no_grad():
        model(torch.randn(32, 4))
    assert list(shapes(model)) == ["float32 32x4"]
    assert model[0].last.tolist() == [0.0, 0.0]


def test_a_checkpoint_sees_only_what_the_model_saves(kernelized, shapes):
    model = kernelized(Mode.TRAINING)
    x = torch.randn(32, 4, requires_grad=True)
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(32, 4))
    assert shapes(model) == {"float32 32x4 recorded": "kernel"}


def test_without_room_for_copies_the_layer_runs_as_it_is(kernelized, monkeypatch, shapes):
    tries = []

    def copy_values(values):
        tries.append(values)
        raise torch.OutOfMemoryError

    monkeypatch.setattr(measured, "copy_values", copy_values)
    model = kernelized()
    with torch.no_grad():
        for _ in range(2):
            model(torch.randn(16, 4))
    assert (model[0].calls, len(tries), shapes(model)) == (2, 1, {})
    assert "no room for copies" in report(model).layers[0].reason


# What makes a class of its own -------------------------------------------------------------------


def test_layers_of_other_sizes_are_measured_by_themselves(write_kernel):
    source = (
        "import time\nfrom torch import nn\n\nclass Kernel(nn.Module):\n"
        "    def forward(self, x):\n"
        "        time.sleep(0.002 if len(self.weight) > 4 else 0)\n"
        "        return x @ self.weight.T\n"
    )
    kernel = LocalLayerRepository(write_kernel(source, name="sized"), layer_name="Kernel")

    @use_kernel_forward_from_hub("Sized")
    class Sized(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size, 4))

        def forward(self, x):
            time.sleep(0.001)
            return x @ self.weight.T

    model = nn.ModuleList([Sized(2), Sized(8), Sized(2)])
    with use_kernel_mapping({"Sized": {"cpu": kernel}}):
        kernelize(model, mode=Mode.INFERENCE, select="measured")
    with torch.no_grad():
        for layer in model:
            layer(torch.ones(3, 4))
    found = [layer.shapes[0].runs for layer in report(model).layers]
    assert found == ["kernel", "original", "kernel"]


def test_autocast_is_another_class(kernelized, shapes):
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(32, 4))
        with torch.autocast("cpu"):
            model(torch.randn(32, 4))
    assert set(shapes(model)) == {"float32 32x4", "float32 32x4 autocast"}


@pytest.mark.parametrize("device", DEVICE_TYPES)
def test_a_model_for_any_type_of_device_can_be_measured(slow, device, layer_class):
    kernel = LocalLayerRepository(slow, layer_name="Slow")
    with use_kernel_mapping({"Layer": {device: kernel}}):
        model = kernelize(layer_class(), mode=Mode.INFERENCE, device=device, select="measured")
    with torch.no_grad():
        model(torch.randn(16, 4))
    [shape] = report(model).layers[0].shapes
    at_home = device == "cpu"
    assert shape.shape == ("float32 16x4" if at_home else "float32 16x4 on cpu")


def test_a_model_that_was_moved_is_not_judged_by_where_it_was(kernelized):
    selection = find_bound(kernelized()[0]).selection
    x = torch.empty(3, 4, device="meta")
    assert selection._describe((x, {})) == "float32 4x4 on meta recorded"


# Other processes ---------------------------------------------------------------------------------


def test_the_process_that_is_first_decides_for_those_that_measure_meanwhile(tmp_path):
    file = TimingsFile(path=tmp_path / "measured" / "0.json", what={"where": "here"})

    def measure_slowly():
        assert file.settle("s", lambda: Timing(1.0, 2.0)) == Timing(1.0, 2.0)  # another one
        return Timing(3.0, 2.0)

    assert file.settle("s", measure_slowly) == Timing(1.0, 2.0)
    assert file.settle("t", lambda: Timing(5.00041, 5.0)) == Timing(5.0, 5.0)
    assert file.read() == {"s": Timing(1.0, 2.0), "t": Timing(5.0, 5.0)}


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    file = TimingsFile(path=tmp_path / "measured" / "0.json", what={})

    def settle(index):
        return file.settle(f"shape {index}", lambda: Timing(float(index), 1.0))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(settle, range(40)))
    assert [each.kernel_us for each in found] == list(range(40))
    assert len(file.read()) == 40


def test_a_layer_that_may_wait_for_other_ranks_is_not_timed(kernelized, monkeypatch, shapes):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(32, 4))
        assert list(shapes(model)) == ["float32 32x4"]
        model[0].inner = nn.Linear(4, 4)  # its output could be gathered from all ranks
        model(torch.randn(64, 4))
    assert list(shapes(model)) == ["float32 32x4"]
