import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_spec.backend import Backend, BackendKind
from kernel_spec.compat import Accepted, Rejected, choose, decide, fits_device
from kernel_spec.system import System, TorchBuild
from kernel_spec.version import MajorMinor, parse_major_minor

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES = json.loads((FIXTURES / "selection.json").read_text())["cases"]
DEVICES = json.loads((FIXTURES / "archs.json").read_text())["devices"]
NAMES = sorted({name for case in CASES for name in case["offered"]})


def version_of(text):
    return None if text is None else parse_major_minor(text)


def system_of(fields):
    torch = fields["torch"]
    return System(
        torch=torch
        and TorchBuild(torch, parse_major_minor(torch), cxx11_abi=bool(fields["cxx11_abi"])),
        tvm_ffi=version_of(fields["tvm_ffi"]),
        backend=Backend(
            BackendKind(fields["backend"]["kind"]), version_of(fields["backend"]["version"])
        ),
        cpu=fields["cpu"],
        os=fields["os"],
        macos=version_of(fields["macos"]),
        python=parse_major_minor(fields["python"]),
        free_threaded=fields["free_threaded"],
        glibc=version_of(fields["glibc"]),
    )


def argument_of(fields):
    argument = fields["backend_argument"]
    return argument and BackendKind(argument)


LINUX = System(
    torch=TorchBuild("2.13.0+cpu", MajorMinor(2, 13)),
    backend=Backend(BackendKind.CPU),
    cpu="x86_64",
    os="linux",
    python=MajorMinor(3, 12),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["title"])
def test_golden_selection(case):
    system, backend = system_of(case["system"]), argument_of(case["system"])
    decisions = decide(system, case["offered"], backend=backend)
    accepted = [decision.name for decision in decisions if isinstance(decision, Accepted)]
    rejected = {
        decision.name: [reason.kind for reason in decision.reasons]
        for decision in decisions
        if isinstance(decision, Rejected)
    }
    assert accepted == case["accepted"]
    assert rejected == case["rejected"]
    best = choose(system, case["offered"], backend=backend)
    assert (best and best.name) == next(iter(case["accepted"]), None)


systems = st.sampled_from([system_of(case["system"]) for case in CASES])


@given(systems, st.lists(st.sampled_from([*NAMES, "not-a-variant", "torch"])), st.randoms())
def test_the_order_does_not_depend_on_the_order_of_names(system, names, shuffler: random.Random):
    shuffled = list(names)
    shuffler.shuffle(shuffled)
    assert decide(system, shuffled) == decide(system, names)


@given(systems, st.sets(st.sampled_from(NAMES)), st.sampled_from(NAMES))
def test_another_name_leaves_the_order_of_the_rest(system, names, extra):
    with_extra = [decision.name for decision in decide(system, names | {extra})]
    without = [decision.name for decision in decide(system, names - {extra})]
    with_extra.remove(extra)
    assert with_extra == without


@given(systems, st.sets(st.sampled_from(NAMES)))
def test_every_name_is_judged_once_and_fitting_ones_come_first(system, names):
    decisions = decide(system, names)
    assert {decision.name for decision in decisions} == names
    assert len(decisions) == len(names)
    fits = [isinstance(decision, Accepted) for decision in decisions]
    assert fits == sorted(fits, reverse=True)


def reasons_of(system, name):
    (decision,) = decide(system, [name])
    return [] if isinstance(decision, Accepted) else [str(reason) for reason in decision.reasons]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "torch212-cxx11-cpu-x86_64-linux",
            "built for torch 2.12, this system has torch 2.13.0+cpu",
        ),
        (
            "torch-stable-abi214-cpu-x86_64-linux",
            "built for torch 2.14 or later, this system has torch 2.13.0+cpu",
        ),
        (
            "torch213-cxx98-cpu-x86_64-linux",
            "built for the C++98 string layout, this system's torch has the C++11 one",
        ),
        ("torch213-cpu-aarch64-linux", "built for aarch64, this system has x86_64"),
        ("torch213-cpu-x86_64-windows", "built for windows, this system runs linux"),
        ("torch213-cu130-x86_64-linux", "built for cuda 13.0, this system has cpu"),
        ("torch-rocm", "runs on rocm, this system has cpu"),
        ("tvm-ffi01-cpu-x86_64-linux", "built for tvm-ffi 0.1, this system has no apache-tvm-ffi"),
    ],
)
def test_reasons_say_what_was_built_and_what_is_there(name, text):
    assert reasons_of(LINUX, name) == [text]


def test_every_reason_of_a_rejected_variant_is_in_its_line():
    (decision,) = decide(LINUX, ["torch212-cu130-aarch64-linux"])
    assert isinstance(decision, Rejected)
    assert decision.reason == (
        "built for aarch64, this system has x86_64; "
        "built for torch 2.12, this system has torch 2.13.0+cpu; "
        "built for cuda 13.0, this system has cpu"
    )


def test_free_threaded_python_loads_only_noarch_before_3_15():
    system = replace(LINUX, python=MajorMinor(3, 14), free_threaded=True)
    names = ["torch-cpu", "torch213-cpu-x86_64-linux", "torch-stable-abi211-cpu-x86_64-linux"]
    decisions = decide(system, names)
    assert [type(decision) for decision in decisions] == [Accepted, Rejected, Rejected]
    assert [[reason.kind for reason in d.reasons] for d in decisions[1:]] == [
        ["free-threaded"],
        ["free-threaded"],
    ]


class TestPrerelease:
    SYSTEM = replace(LINUX, torch=TorchBuild("2.14.0a0+git1", MajorMinor(2, 14), prerelease=True))

    def test_never_equals_a_release_for_the_full_interface(self):
        (text,) = reasons_of(self.SYSTEM, "torch214-cxx11-cpu-x86_64-linux")
        assert text == ("built for torch 2.14, this system has torch 2.14.0a0+git1, a pre-release")

    def test_has_the_stable_abi_of_earlier_releases_only(self):
        decisions = decide(
            self.SYSTEM, [f"torch-stable-abi2{minor}-cpu-x86_64-linux" for minor in (13, 14)]
        )
        assert [(d.name[:19], type(d)) for d in decisions] == [
            ("torch-stable-abi213", Accepted),
            ("torch-stable-abi214", Rejected),
        ]


def test_unknown_versions_never_fit():
    cuda = replace(LINUX, backend=Backend(BackendKind.CUDA))
    assert "unknown version of cuda" in reasons_of(cuda, "torch213-cu130-x86_64-linux")[0]
    mac = replace(LINUX, backend=Backend(BackendKind.METAL), cpu="aarch64", os="darwin")
    assert "macOS 26.0" in reasons_of(mac, "torch213-metal-aarch64-darwin")[0]
    old = replace(mac, macos=MajorMinor(15, 2))
    assert "macOS 15.2" in reasons_of(old, "torch213-metal-aarch64-darwin")[0]


def test_another_backend_is_judged_without_its_version():
    names = ["torch-cuda", "torch213-cu130-x86_64-linux"]
    decisions = decide(LINUX, names, backend=BackendKind.CUDA)
    assert [type(decision) for decision in decisions] == [Accepted, Rejected]


def test_nothing_offered_is_nothing_chosen():
    assert decide(LINUX, []) == ()
    assert choose(LINUX, []) is None
    assert choose(LINUX, ["torch-rocm"]) is None


@pytest.mark.parametrize("case", DEVICES, ids=lambda case: case["title"])
def test_golden_devices(case):
    verdict = fits_device(BackendKind(case["backend"]), case["archs"], case["device"])
    assert {True: "yes", False: "no", None: "unknown"}[verdict] == case["supported"]


def test_no_declared_arch_and_an_unreadable_device_say_nothing():
    assert fits_device(BackendKind.CUDA, [], "9.0") is None
    assert fits_device(BackendKind.CUDA, ["9.0"], "gfx942") is None
