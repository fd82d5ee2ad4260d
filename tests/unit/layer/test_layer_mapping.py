"""Which kernel a layer gets: modes, devices, capabilities, and mappings that stack and end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import (
    CUDAProperties,
    Device,
    KernelizeFallback,
    LayerRepository,
    Mode,
    ROCMProperties,
    register_kernel_mapping,
    use_kernel_mapping,
)
from kernels.errors import MappingError
from kernels.layer.device import Target, find_target
from kernels.layer.mapping import Match, Miss, current_table, find_kernel
from kernels.layer.mode import describe_mode, modes_serving

INFERENCE, TRAINING, COMPILE = Mode.INFERENCE, Mode.TRAINING, Mode.TORCH_COMPILE
WANTED = [INFERENCE, TRAINING, INFERENCE | COMPILE, TRAINING | COMPILE]


def kernel(name):
    return LayerRepository("acme/toy", layer_name=name)


def found(name, *, mode=INFERENCE, device="cpu", capability=None):
    target = Target(type=device, capability=capability)
    match find_kernel(current_table(), name, target, mode):
        case Match(repository=repository):
            return repository.layer_name
        case Miss(case=case):
            return case


# Modes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "order"), [
    (INFERENCE, ["I", "IC", "T", "TC", "F"]),
    (TRAINING, ["T", "TC", "F"]),
    (INFERENCE | COMPILE, ["IC", "TC", "F"]),
    (TRAINING | COMPILE, ["TC", "F"]),
])  # fmt: skip
def test_the_best_registered_mode_serves(wanted, order):
    modes = {"I": INFERENCE, "T": TRAINING, "IC": INFERENCE | COMPILE, "TC": TRAINING | COMPILE}
    modes["F"] = Mode.FALLBACK
    there = dict(modes)
    for expected in order:
        entry = {modes[name]: kernel(name) for name in reversed(list(there))}
        with use_kernel_mapping({"L": {"cpu": entry}}, inherit_mapping=False):
            assert found("L", mode=wanted) == expected
        del there[expected]
    with use_kernel_mapping({"L": {"cpu": {modes[n]: kernel(n) for n in there}}}):
        assert found("L", mode=wanted) is KernelizeFallback.NO_COMPATIBLE_MODE


def test_modes_that_exclude_each_other():
    with pytest.raises(ValueError, match="mutually exclusive"):
        INFERENCE | TRAINING
    with pytest.raises(ValueError, match="mutually exclusive"):
        (INFERENCE | COMPILE) | TRAINING
    for other in (INFERENCE, TRAINING, COMPILE):
        with pytest.raises(ValueError, match="FALLBACK cannot be combined"):
            Mode.FALLBACK | other
        with pytest.raises(ValueError, match="FALLBACK cannot be combined"):
            other | Mode.FALLBACK
    assert Mode.FALLBACK | Mode.FALLBACK is Mode.FALLBACK
    with pytest.raises(TypeError):
        INFERENCE | 1


def test_modes_are_written_as_their_flags():
    assert describe_mode(INFERENCE | COMPILE) == "INFERENCE | TORCH_COMPILE"
    assert COMPILE in INFERENCE | COMPILE
    assert INFERENCE | COMPILE == COMPILE | INFERENCE
    for wanted in WANTED:
        assert modes_serving(wanted)[0] == wanted


def test_all_cases_of_fallback():
    assert KernelizeFallback.ALL & ~KernelizeFallback.DEFAULT == KernelizeFallback.CANNOT_LOAD
    assert KernelizeFallback.NONE.value == 0


# Devices and capabilities ----------------------------------------------------------------------


def cuda(low, high):
    return Device("cuda", properties=CUDAProperties(min_capability=low, max_capability=high))


def test_the_narrowest_range_wins():
    mapping = {
        cuda(75, 90): kernel("wide"),
        cuda(80, 89): kernel("ampere"),
        cuda(89, 89): kernel("exact"),
        "cuda": kernel("any"),
    }
    with use_kernel_mapping({"L": mapping}):
        expected = {89: "exact", 86: "ampere", 90: "wide", 75: "wide", 70: "any", 120: "any"}
        for capability, name in expected.items():
            assert found("L", device="cuda", capability=capability) == name
        # What has no capability, as on a machine without a GPU, gets what is for any.
        assert found("L", device="cuda") == "any"
        assert found("L", device="rocm", capability=90) is KernelizeFallback.NO_DEVICE


def test_no_range_that_holds_it():
    with use_kernel_mapping({"L": {cuda(90, 100): kernel("new")}}):
        assert found("L", device="cuda", capability=80) is (
            KernelizeFallback.NO_COMPATIBLE_PROPERTIES
        )


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8), st.integers(0, 60))
def test_lookup_agrees_with_trying_every_range(spans, capability):
    ranges = {cuda(low, low + width): kernel(f"{low}+{width}") for low, width in spans}
    holding = [(width, -low) for low, width in spans if low <= capability <= low + width]
    with use_kernel_mapping({"L": ranges}, inherit_mapping=False):
        name = found("L", device="cuda", capability=capability)
    if not spans:
        assert name is KernelizeFallback.NO_DEVICE
    elif holding:
        width, low = min(holding)
        assert name == f"{-low}+{width}"
    else:
        assert name is KernelizeFallback.NO_COMPATIBLE_PROPERTIES


def test_devices_that_cannot_be():
    with pytest.raises(ValueError, match="unsupported device type"):
        Device("gpu")
    with pytest.raises(ValueError, match="expected CUDAProperties, found ROCMProperties"):
        Device("cuda", ROCMProperties(90, 90))
    with pytest.raises(ValueError, match="it takes none, found CUDAProperties"):
        Device("cpu", CUDAProperties(min_capability=90, max_capability=90))
    with pytest.raises(ValueError, match=r"min_capability \(90\) is above"):
        CUDAProperties(min_capability=90, max_capability=80)
    with pytest.raises(ValueError, match=r"expected a number such as 90.*found '9\.0'"):
        CUDAProperties(min_capability="9.0", max_capability=90)
    assert Device("cuda") == Device(type="cuda", properties=None)
    assert len({cuda(80, 90), cuda(80, 90), Device("cuda")}) == 2


def test_the_device_of_a_model(monkeypatch):
    model = torch.nn.Linear(1, 1)
    assert find_target(model, None) == Target(type="cpu")
    assert find_target(model, torch.device("cpu")) == Target(type="cpu")
    assert find_target(model, "cuda").type == "cuda"
    with pytest.raises(ValueError, match="meta device"):
        find_target(torch.nn.Linear(1, 1, device="meta"), None)
    with pytest.raises(ValueError, match="found 'cuda:x'"):
        find_target(model, "cuda:x")
    only_buffers = torch.nn.Module()
    only_buffers.register_buffer("b", torch.ones(1))
    assert find_target(only_buffers, None) == Target(type="cpu")


def test_torch_calls_amd_gpus_cuda(monkeypatch):
    asked = []

    def capability(index):
        asked.append(index)
        return (9, 4)

    monkeypatch.setattr(torch.version, "hip", "6.4", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    target = find_target(torch.nn.Linear(1, 1), torch.device("cuda", 3))
    assert target == Target(type="rocm", capability=94, name="GPU 3")
    assert asked == [3]
    # The words of mappings are meant as they are.
    assert find_target(torch.nn.Linear(1, 1), "cuda").type == "cuda"


# Registering -----------------------------------------------------------------------------------


def test_a_later_entry_replaces_the_same_device_whole():
    register_kernel_mapping({"L": {"cpu": {INFERENCE: kernel("i"), TRAINING: kernel("t")}}})
    register_kernel_mapping({"L": {"cuda": kernel("c")}, "M": {"cpu": kernel("m")}})
    assert (found("L"), found("L", device="cuda"), found("M")) == ("i", "c", "m")
    register_kernel_mapping({"L": {"cpu": {INFERENCE: kernel("new")}}})
    assert found("L") == "new"
    assert found("L", mode=TRAINING) is KernelizeFallback.NO_COMPATIBLE_MODE
    register_kernel_mapping({"N": {"cpu": kernel("n")}}, inherit_mapping=False)
    assert found("L") is KernelizeFallback.NO_LAYER
    assert found("N") == "n"


def test_a_mapping_ends_with_its_block():
    register_kernel_mapping({"L": {"cpu": kernel("outer")}, "M": {"cpu": kernel("m")}})
    with use_kernel_mapping({"L": {"cpu": kernel("inner")}}):
        assert (found("L"), found("M")) == ("inner", "m")
        with use_kernel_mapping({"L": {"cpu": kernel("alone")}}, inherit_mapping=False):
            assert found("L") == "alone"
            assert found("M") is KernelizeFallback.NO_LAYER
            register_kernel_mapping({"M": {"cpu": kernel("for now")}})
            assert found("M") == "for now"
        assert (found("L"), found("M")) == ("inner", "m")
    assert (found("L"), found("M")) == ("outer", "m")


def test_a_mapping_ends_after_an_error_too():
    with pytest.raises(RuntimeError), use_kernel_mapping({"L": {"cpu": kernel("inner")}}):
        raise RuntimeError
    assert found("L") is KernelizeFallback.NO_LAYER


def test_a_block_may_be_entered_again_inside_itself_and_around_a_function():
    block = use_kernel_mapping({"L": {"cpu": kernel("inner")}})
    for _ in range(2):
        with block:
            assert found("L") == "inner"
            with use_kernel_mapping({"L": {"cpu": kernel("other")}}), block:
                assert found("L") == "inner"
            assert found("L") == "inner"
        assert found("L") is KernelizeFallback.NO_LAYER
    assert block(found)("L") == "inner"
    assert found("L") is KernelizeFallback.NO_LAYER


def test_what_is_registered_is_seen_by_every_thread_and_a_block_by_none_else():
    register_kernel_mapping({"L": {"cpu": kernel("all")}})
    with use_kernel_mapping({"L": {"cpu": kernel("mine")}}), ThreadPoolExecutor(1) as pool:
        assert pool.submit(found, "L").result() == "all"
        pool.submit(register_kernel_mapping, {"M": {"cpu": kernel("theirs")}}).result()
    assert found("M") == "theirs"


def test_registering_from_many_threads_loses_nothing():
    start = threading.Barrier(8)

    def register(index):
        start.wait()
        for turn in range(50):
            register_kernel_mapping({f"{index}.{turn}": {"cpu": kernel("k")}})

    threads = [threading.Thread(target=register, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(current_table()) == 400


def test_every_fault_of_a_mapping_is_told():
    with pytest.raises(MappingError) as caught:
        register_kernel_mapping({
            "A": {"gpu": kernel("a")},
            "B": {"cpu": "acme/toy"},
            "C": kernel("c"),
            "D": {"cpu": {"inference": kernel("d")}},
            "E": {"cpu": {COMPILE: kernel("e")}},
            "F": {"cpu": LayerRepository},
            7: {},
        })  # fmt: skip
    text = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert len(caught.value.faults) == 7
    for words in (
        "A['gpu']: unknown device",
        "B['cpu']: expected a kernel",
        "C: expected {device: kernel}",
        "D['cpu']: expected a Mode to serve, found 'inference'",
        "found TORCH_COMPILE",
        "F['cpu']: expected a kernel, such as LayerRepository(...); found <class",
        "found 7",
    ):
        assert words in text
    assert current_table() == {}
    with pytest.raises(TypeError, match="expected a dictionary"):
        register_kernel_mapping([])
