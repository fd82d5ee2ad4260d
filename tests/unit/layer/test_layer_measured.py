"""select="measured": the faster of two, per class of shapes, remembered, and told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
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
from kernels.layer import kernelization, measured
from kernels.layer.binding import find_bound
from kernels.layer.device import DEVICE_TYPES
from kernels.layer.timings import Timing, TimingsFile

SOURCE = """
import time
import torch
import torch.utils.checkpoint
from torch import nn

CALLS = []
SECONDS = {"few": 0.004, "many": 0.0}


class Slow(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        CALLS.append(tuple(x.shape))
        time.sleep(SECONDS["few" if x.numel() <= 8 * 4 else "many"])
        return x * self.weight
"""


@use_kernel_forward_from_hub("Layer")
class Layer(nn.Module):
    """Slower than the kernel for many rows, faster for few."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        time.sleep(0.002)
        return x * self.weight


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(measured, "_WARM_UP", 1)
    monkeypatch.setattr(measured, "_ROUNDS", 3)
    forget_selections()


def forget_selections():
    kernelization._selection.cache_clear()


@pytest.fixture
def kernelized(write_kernel) -> Callable[..., nn.Module]:
    project = write_kernel(SOURCE, name="slow")
    kernel = LocalLayerRepository(project, layer_name="Slow")

    def make(mode=Mode.INFERENCE) -> nn.Module:
        with use_kernel_mapping({"Layer": {"cpu": kernel}}):
            return kernelize(nn.Sequential(Layer()), mode=mode, select="measured", strict=True)

    return make


def shapes(model):
    return {each.shape: each.runs for each in report(model).layers[0].shapes}


def test_the_faster_one_runs_for_each_class_of_shapes(kernelized):
    model = kernelized()
    few, many = torch.randn(5, 4), torch.randn(2, 16, 4)
    with torch.no_grad():
        torch.testing.assert_close(model(few), few)
        torch.testing.assert_close(model(many), many)
        assert shapes(model) == {"float32 8x4": "original", "float32 32x4": "kernel"}
        before = model[0].calls
        model(many)
        assert model[0].calls == before
        model(few)
        # 5, 6, 7 and 8 rows are one class: nothing is measured again.
        model(torch.randn(6, 4))
        assert model[0].calls == before + 2


def test_the_report_tells_what_was_measured(kernelized):
    model = kernelized()
    [layer] = report(model).layers
    assert (layer.runs, layer.shapes) == ("measured", ())
    assert "the original until the model was called" in layer.reason
    assert report(model).kernels == ()
    with torch.no_grad():
        model(torch.randn(20, 4))
    [shape] = report(model).layers[0].shapes
    assert shape.kernel_us < shape.original_us
    assert shape.original_us >= 2000
    assert len(report(model).kernels) == 1
    table = str(report(model))
    assert "float32 32x4" in table
    assert "us of the original" in table
    [entry] = json.loads(report(model).to_json())["layers"]
    assert entry["shapes"][0]["runs"] == "kernel"


def test_layers_of_one_class_share_what_was_measured(kernelized):
    first, second = kernelized(), kernelized()
    with torch.no_grad():
        first(torch.randn(4, 4))
        assert shapes(second) == {"float32 4x4": "original"}
        second(torch.randn(4, 4))
    assert second[0].calls == 1


def test_later_processes_know_it_too(kernelized, tmp_path):
    with torch.no_grad():
        kernelized()(torch.randn(4, 4))
    [file] = (tmp_path / "xdg_state_home" / "kernels" / "measured").iterdir()
    document = json.loads(file.read_text())
    assert list(document["microseconds"]) == ["float32 4x4"]
    assert "threads, INFERENCE, torch" in document["what"]["where"]
    forget_selections()
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(3, 4))
    assert model[0].calls == 1
    # What is kept is believed, so that it can be seen which way it was decided.
    document["microseconds"]["float32 4x4"] = [1.0, 2.0]
    file.write_text(json.dumps(document))
    forget_selections()
    assert shapes(kernelized()) == {"float32 4x4": "kernel"}


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "what": {}, "microseconds": 3}']
)
def test_a_damaged_file_costs_a_measurement(kernelized, tmp_path, damage):
    with torch.no_grad():
        kernelized()(torch.randn(4, 4))
        [file] = (tmp_path / "xdg_state_home" / "kernels" / "measured").iterdir()
        file.write_bytes(damage)
        forget_selections()
        model = kernelized()
        assert shapes(model) == {}
        model(torch.randn(4, 4))
    assert shapes(model) == {"float32 4x4": "original"}
    assert json.loads(file.read_text())["format"] == 1


def test_a_state_directory_that_cannot_be_written_is_no_error(kernelized, tmp_path):
    (tmp_path / "xdg_state_home").write_text("a file")
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(4, 4))
    assert shapes(model) == {"float32 4x4": "original"}


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


def test_training_is_measured_with_its_backward(write_kernel):
    source = (
        "import time, torch\nfrom torch import nn\n\nclass Late(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x * 1\n"
        "    @staticmethod\n    def backward(ctx, dy):\n        time.sleep(0.01)\n        return dy\n\n"
        "class SlowBackward(nn.Module):\n"
        "    def forward(self, x):\n        return Late.apply(x)\n"
    )
    kernel = LocalLayerRepository(write_kernel(source, name="late"), layer_name="SlowBackward")
    x = torch.randn(3, 4, requires_grad=True)
    found = {}
    for mode in (Mode.INFERENCE, Mode.TRAINING):
        with use_kernel_mapping({"Layer": {"cpu": kernel}}):
            model = kernelize(nn.Sequential(Layer()), mode=mode, select="measured")
        model(x)
        found[mode] = shapes(model)["float32 4x4 recorded"]
    assert found == {Mode.INFERENCE: "kernel", Mode.TRAINING: "original"}


def test_what_cannot_be_timed_runs_the_original_undecided(kernelized):
    model = kernelized()
    with torch.no_grad():
        model(torch.empty(0, 4))

        class Special(torch.Tensor):
            pass

        model(torch.randn(3, 4).as_subclass(Special))
        model(torch.eye(4).to_sparse())
        with pytest.raises(RuntimeError, match="both self and other to be nested"):
            model(torch.nested.nested_tensor([torch.ones(1, 4), torch.ones(2, 4)]))
    torch.func.vmap(model)(torch.randn(2, 3, 4))
    assert shapes(model) == {}
    assert model[0].calls == 5


def test_tensors_in_a_list_have_shapes_too(write_kernel):
    source = (
        "import time, torch\nfrom torch import nn\n\nclass Sum(nn.Module):\n"
        "    def forward(self, xs):\n"
        "        time.sleep(0.002 if xs[0].shape[0] > 8 else 0)\n        return sum(xs)\n"
    )
    kernel = LocalLayerRepository(write_kernel(source, name="sums"), layer_name="Sum")

    @use_kernel_forward_from_hub("Sum")
    class Sum(nn.Module):
        def forward(self, xs):
            time.sleep(0.001)
            return sum(xs)

    model = Sum()
    with use_kernel_mapping({"Sum": {"cpu": kernel}}):
        kernelize(model, mode=Mode.INFERENCE, device="cpu", select="measured")
    with torch.no_grad():
        for rows in (4, 16, 4):
            x = torch.randn(rows, 2)
            torch.testing.assert_close(model([x, x]), 2 * x)
    found = {each.shape: each.runs for each in report(model).layers[0].shapes}
    assert found == {"float32 4x2, float32 4x2": "kernel", "float32 16x2, float32 16x2": "original"}


def test_threads_measure_once(kernelized, monkeypatch):
    model = kernelized()
    x = torch.randn(16, 4)
    measurements = []
    time_both = measured.time_both

    def counted(*arguments):
        measurements.append(1)
        return time_both(*arguments)

    def call(_):
        with torch.no_grad():
            return model(x)

    monkeypatch.setattr(measured, "time_both", counted)
    with ThreadPoolExecutor(8) as pool:
        for result in pool.map(call, range(16)):
            torch.testing.assert_close(result, x)
    assert shapes(model) == {"float32 16x4": "kernel"}
    assert len(measurements) == 1


def test_shapes_without_end_do_not_fill_the_memory(kernelized, monkeypatch):
    monkeypatch.setattr(measured, "_MOST_SHAPES", 8)
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(64, 4))
        for rows in range(33, 64):
            model(torch.randn(rows, 4))
    assert len(find_bound(model[0]).selection._choices) <= 8


def test_a_busy_machine_does_not_decide():
    """Rounds that are slower by bad luck do not count, and more of them are made."""
    busy = iter([0.0, 0.0, 0.03, 0.02, 0.05, 0.012, *([0.0] * 100)])
    rounds = []

    def kernel():
        rounds.append(1)
        time.sleep(0.002 + next(busy))

    ours, theirs = measured.time_both(kernel, lambda: time.sleep(0.004), lambda: None)
    assert ours < theirs
    assert len(rounds) > 2 + 3


def test_equal_times_are_the_kernels():
    assert Timing(5.0, 5.0).is_kernel_faster
    assert not Timing(5.1, 5.0).is_kernel_faster


def test_both_are_timed_in_turns():
    order: list[str] = []
    ours, theirs = measured.time_both(
        lambda: (order.append("a"), time.sleep(0.002))[0],
        lambda: (order.append("b"), time.sleep(0.004))[0],
        lambda: None,
    )
    rounds = "".join(order)[4:]
    assert "".join(order)[:4] == "aabb"
    assert rounds == "ab" * (len(rounds) // 2)
    assert 0.002 <= ours < theirs


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
    assert report(model).layers[0].shapes == ()


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


def test_a_checkpoint_sees_only_what_the_model_saves(kernelized):
    model = kernelized(Mode.TRAINING)
    x = torch.randn(32, 4, requires_grad=True)
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(32, 4))
    assert shapes(model) == {"float32 32x4 recorded": "kernel"}


def test_without_room_for_copies_the_layer_runs_as_it_is(kernelized, monkeypatch):
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


def test_autocast_is_another_class(kernelized):
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(32, 4))
        with torch.autocast("cpu"):
            model(torch.randn(32, 4))
    assert set(shapes(model)) == {"float32 32x4", "float32 32x4 autocast"}


@pytest.mark.parametrize("device", DEVICE_TYPES)
def test_a_model_for_any_type_of_device_can_be_measured(write_kernel, device):
    kernel = LocalLayerRepository(write_kernel(SOURCE, name="slow"), layer_name="Slow")
    with use_kernel_mapping({"Layer": {device: kernel}}):
        model = kernelize(Layer(), mode=Mode.INFERENCE, device=device, select="measured")
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


def test_a_layer_that_may_wait_for_other_ranks_is_not_timed(kernelized, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(32, 4))
        assert list(shapes(model)) == ["float32 32x4"]
        model[0].inner = nn.Linear(4, 4)  # its output could be gathered from all ranks
        model(torch.randn(64, 4))
    assert list(shapes(model)) == ["float32 32x4"]
