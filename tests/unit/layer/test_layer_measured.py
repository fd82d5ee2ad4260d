"""select="measured": the faster of two, per class of shapes, remembered, and told."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from kernels import (
    LocalLayerRepository,
    Mode,
    kernelize,
    report,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)
from kernels.layer import measured, selection
from kernels.layer.binding import find_bound
from kernels.layer.timings import Timing

pytestmark = pytest.mark.usefixtures("few_rounds")


def test_the_faster_one_runs_for_each_class_of_shapes(kernelized, shapes):
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


def test_layers_of_one_class_share_what_was_measured(kernelized, shapes):
    first, second = kernelized(), kernelized()
    with torch.no_grad():
        first(torch.randn(4, 4))
        assert shapes(second) == {"float32 4x4": "original"}
        second(torch.randn(4, 4))
    assert second[0].calls == 1


def test_later_processes_know_it_too(kernelized, tmp_path, shapes):
    with torch.no_grad():
        kernelized()(torch.randn(4, 4))
    [file] = (tmp_path / "xdg_state_home" / "kernels" / "measured").iterdir()
    document = json.loads(file.read_text())
    assert list(document["microseconds"]) == ["float32 4x4"]
    assert "threads, INFERENCE, torch" in document["what"]["where"]
    selection._share.cache_clear()
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(3, 4))
    assert model[0].calls == 1
    # What is kept is believed, so that it can be seen which way it was decided.
    document["microseconds"]["float32 4x4"] = [1.0, 2.0]
    file.write_text(json.dumps(document))
    selection._share.cache_clear()
    assert shapes(kernelized()) == {"float32 4x4": "kernel"}


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"format": 2}', b'{"format": 1, "what": {}, "microseconds": 3}']
)
def test_a_damaged_file_costs_a_measurement(kernelized, tmp_path, damage, shapes):
    with torch.no_grad():
        kernelized()(torch.randn(4, 4))
        [file] = (tmp_path / "xdg_state_home" / "kernels" / "measured").iterdir()
        file.write_bytes(damage)
        selection._share.cache_clear()
        model = kernelized()
        assert shapes(model) == {}
        model(torch.randn(4, 4))
    assert shapes(model) == {"float32 4x4": "original"}
    assert json.loads(file.read_text())["format"] == 1


def test_a_state_directory_that_cannot_be_written_is_no_error(kernelized, tmp_path, shapes):
    (tmp_path / "xdg_state_home").write_text("a file")
    model = kernelized()
    with torch.no_grad():
        model(torch.randn(4, 4))
    assert shapes(model) == {"float32 4x4": "original"}


def test_training_is_measured_with_its_backward(write_kernel, shapes, layer_class):
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
            model = kernelize(nn.Sequential(layer_class()), mode=mode, select="measured")
        model(x)
        found[mode] = shapes(model)["float32 4x4 recorded"]
    assert found == {Mode.INFERENCE: "kernel", Mode.TRAINING: "original"}


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


def test_threads_measure_once(kernelized, monkeypatch, shapes):
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
