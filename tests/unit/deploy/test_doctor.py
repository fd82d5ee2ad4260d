"""``kernels doctor``: one cause and one command for what keeps a kernel from loading; nothing secret is told."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_spec.backend import Backend, BackendKind
from kernel_spec.compat import decide
from kernel_spec.metadata import KernelDependency
from kernel_spec.system import Device, System, TorchBuild
from kernel_spec.version import MajorMinor
from kernels.cli import run
from kernels.doctor_advice import advise
from kernels.hub_address import hide_credentials
from kernels.linkage import verdicts
from kernels.linkage.host import Host
from kernels.settings import describe_settings

LINKAGE = Path(__file__).parents[2] / "fixtures" / "linkage"
STABLE = "torch-stable-abi210-cpu-x86_64-linux"


def machine(cuda=None, torch="2.13.0", **more):
    major, minor = map(int, torch.split(".")[:2])
    backend = Backend(BackendKind.CUDA, MajorMinor(*cuda)) if cuda else Backend(BackendKind.CPU)
    facts = {
        "torch": TorchBuild(torch, MajorMinor(major, minor), prerelease="a" in torch),
        "backend": backend,
        "cpu": "x86_64",
        "os": "linux",
        "python": MajorMinor(3, 13),
        "glibc": MajorMinor(2, 36),
    }
    return System(**(facts | more))


@pytest.fixture
def on(monkeypatch):
    """Be on another machine."""

    def be(system, devices=()):
        host = Host(system=system, torch_libraries=(LINKAGE / "libc10.so",))
        for module in ("choose", "doctor", "doctor_environment", "fit", "local", "locked"):
            monkeypatch.setattr(f"kernels.{module}.detect", lambda: system, raising=False)
            monkeypatch.setattr(
                f"kernels.{module}.detect_devices",
                lambda s: replace(s, devices=devices),
                raising=False,
            )
        monkeypatch.setattr(verdicts, "read_host", lambda s: host._replace(system=s))
        verdicts.forget()

    yield be
    verdicts.forget()


def examine(capsys, *words):
    code = run(["doctor", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_what_loads_is_said_to_load(on, publisher, capsys):
    on(machine())
    publisher.publish(variants={"torch-cpu": {"__init__.py": "raise SystemExit('it was run')\n"}})
    code, found = examine(capsys, "acme/toy")
    assert (code, found["chosen"], found["advice"]) == (0, "torch-cpu", None)
    assert run(["doctor", "acme/toy"]) == 0
    assert "It loads: torch-cpu" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are Linux's")
def test_the_bytes_are_read_and_the_next_variant_is_tried(on, publisher, capsys):
    on(machine())
    data = {"__init__.py": "", "_x.abi3.so": (LINKAGE / "old_layout.so").read_bytes()}
    publisher.publish(variants={STABLE: data, "torch-cpu": {"__init__.py": ""}})
    code, found = examine(capsys, "acme/toy")
    assert (code, found["chosen"]) == (0, "torch-cpu")
    [[kind, text]] = found["variants"][STABLE]
    assert kind == "abi"
    assert "c10::Error::Error" in text


@pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are Linux's")
@pytest.mark.parametrize(
    ("library", "cause", "command"),
    [
        ("shim.so", "aoti_torch_of_tomorrow", "pip install --upgrade torch"),
        ("glibc.so", "needs glibc 2.99", "get_kernel('acme/toy', build_from_source='missing')"),
        ("old_layout.so", "C++98 string layout", "build_from_source='missing'"),
        ("cudart.so", "libcudart.so.99", "build_from_source='missing'"),
    ],
)
def test_one_cause_and_one_command(on, publisher, capsys, library, cause, command):  # noqa: PLR0917
    on(machine())
    files = {"__init__.py": "", "_x.abi3.so": (LINKAGE / library).read_bytes()}
    publisher.publish(variants={STABLE: files})
    assert run(["doctor", "acme/toy"]) == 1
    said = capsys.readouterr().out
    assert said.count("cause: ") == said.count("do: ") == 1
    assert cause in said.partition("cause: ")[2]
    assert command in said.partition("do: ")[2]


def test_another_version_that_fits_is_the_command(on, publisher, capsys):
    """kernels-community 1082, vllm-omni 6971: only v3 has a build for this torch."""
    on(machine((13, 0)))
    names = [f"torch2{minor}-cxx11-cu130-x86_64-linux" for minor in range(7, 13)]
    files = {"__init__.py": ""}
    publisher.publish(variants=dict.fromkeys(names, files), backend=BackendKind.CUDA)
    stable = "torch-stable-abi29-cu130-x86_64-linux"
    publisher.publish(branch="v3", variants={stable: files}, backend=BackendKind.CUDA)
    code, found = examine(capsys, "acme/toy", "--version", "1")
    assert code == 1
    assert found["advice"]["command"] == "get_kernel('acme/toy', version=3)"
    assert "version 3 has one that fits" in found["advice"]["cause"]
    code, found = examine(capsys, "acme/toy")
    assert (code, found["chosen"]) == (0, stable)


def advice(names, system):
    return advise("acme/toy", decide(system, names), system)


@pytest.mark.parametrize(
    ("names", "system", "variant", "command"),
    [
        (
            ["torch212-cxx11-cpu-x86_64-linux", "torch212-cxx11-cpu-aarch64-linux"],
            machine(),
            "torch212-cxx11-cpu-x86_64-linux",
            "pip install 'torch==2.12.*'",
        ),
        (
            ["torch-stable-abi214-cpu-x86_64-linux"],
            machine(),
            "torch-stable-abi214-cpu-x86_64-linux",
            "pip install 'torch>=2.14'",
        ),
        (
            ["torch-stable-abi210-cu130-x86_64-linux", "torch-rocm"],
            machine(torch="2.13.0+cpu"),
            "torch-stable-abi210-cu130-x86_64-linux",
            "pip install 'torch==2.13.0+cu130'",
        ),
        (
            ["torch-stable-abi210-cpu-x86_64-linux"],
            machine(free_threaded=True),
            "torch-stable-abi210-cpu-x86_64-linux",
            "python3.13",
        ),
        (["torch-of-tomorrow"], machine(), "torch-of-tomorrow", "pip install --upgrade kernels"),
        (
            ["torch25-cxx11-cpu-x86_64-linux"],
            machine(torch="2.5.0a0+872d972e41.nv24.08"),
            "torch25-cxx11-cpu-x86_64-linux",
            "pip install 'torch==2.5.*'",
        ),
        ([], machine(), "", "kernels versions acme/toy"),
    ],
)
def test_the_nearest_variant_decides_what_to_do(names, system, variant, command):
    found = advice(names, system)
    assert (found.variant, found.command) == (variant, command)
    assert found.cause


def test_a_device_without_code_is_hidden_where_another_has_it(on, publisher, capsys):
    devices = (Device("9.0", "Hopper", 0), Device("12.0", "Blackwell", 1))
    on(machine((13, 0)), devices)
    files = {"__init__.py": ""}
    name = "torch-stable-abi210-cu130-x86_64-linux"
    publisher.publish(variants={name: files}, archs=("8.0", "9.0a"), backend=BackendKind.CUDA)
    code, found = examine(capsys, "acme/toy")
    assert code == 1
    assert "Blackwell 1 (12.0)" in found["advice"]["cause"]
    assert found["advice"]["command"] == "export CUDA_VISIBLE_DEVICES=0"


@pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are Linux's")
def test_the_gpu_code_of_the_chosen_variant_is_read_out(on, publisher, capsys):
    """kernels 698: nobody should need cuobjdump to learn why a launch fails."""
    on(machine((13, 0)), (Device("9.0", "Hopper", 0),))
    data = (LINKAGE.parent / "binary" / "device.so").read_bytes()
    name = "torch-stable-abi210-cu130-x86_64-linux"
    files = {"__init__.py": "", "_x.abi3.so": data}
    publisher.publish(variants={name: files}, backend=BackendKind.CUDA)
    code, found = examine(capsys, "acme/toy")
    assert (code, found["chosen"]) == (0, name)
    assert {"9.0a", "8.0+PTX"} <= set(found["archs"])
    assert run(["doctor", "acme/toy"]) == 0
    assert f"GPU code in {name}: " in capsys.readouterr().out


def test_what_a_load_would_trip_over_later_is_found_too(on, web, publisher, capsys):
    """Trust, packages and kernels that it needs: each is the cause when its turn comes."""
    on(machine())
    needs = (KernelDependency(repo_id="acme/gone", version=1),)
    publisher.publish("acme/needy", needs=needs)
    publisher.publish("acme/packs", packages=("not-a-real-package",))
    publisher.publish("rogue/toy")
    causes = {
        "acme/needy": ("acme/gone", "kernels info acme/needy"),
        "acme/packs": ("not-a-real-package", "pip install not-a-real-package"),
        "rogue/toy": ("trusted", "kernels trust add rogue"),
    }
    for repo_id, (cause, command) in causes.items():
        code, found = examine(capsys, repo_id)
        assert (code, found["advice"]["command"]) == (1, command)
        assert cause in found["advice"]["cause"]


def test_offline_the_command_needs_no_network(on, web, publisher, capsys, monkeypatch):
    on(machine())
    publisher.publish(variants={"torch-cpu": {"__init__.py": ""}})
    assert run(["versions", "acme/toy"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = len(web.requests)
    code, found = examine(capsys, "acme/toy")
    assert (code, found["advice"]["command"]) == (1, "kernels bundle install FILE")
    assert len(web.requests) == before


def test_a_torch_that_does_not_work_is_the_cause(on, publisher, capsys, monkeypatch):
    on(machine((13, 0)))
    publisher.publish(variants={"torch-universal": {"__init__.py": ""}})

    def fail(system):
        raise OSError("libcudnn.so.9: cannot open shared object file")

    monkeypatch.setattr("kernels.doctor.detect_devices", fail)
    monkeypatch.setattr("kernels.doctor_environment.detect_devices", fail)
    code, found = examine(capsys, "acme/toy")
    assert code == 1
    assert "libcudnn.so.9" in found["advice"]["cause"]
    assert "import torch" in found["advice"]["command"]
    assert run(["doctor"]) == 0, "what the machine is can be said all the same"
    assert "devices: cannot be read: libcudnn.so.9" in capsys.readouterr().out


def test_a_path_is_examined_and_a_missing_one_is_told(on, make_variant, tmp_path, capsys):
    """kernels 753, 13: the variants that were found and each reason."""
    on(machine())
    make_variant(tmp_path / "p" / "build" / "torch-cuda")
    code, found = examine(capsys, str(tmp_path / "p"))
    assert (code, list(found["variants"])) == (1, ["torch-cuda"])
    assert run(["doctor", str(tmp_path / "gone")]) == 2
    assert run(["doctor", "acme/nowhere"]) == 1


def test_the_machine_is_described_with_the_origin_of_each_setting(on, capsys, monkeypatch):
    on(machine((13, 0)), (Device("9.0", "Hopper", 0),))
    monkeypatch.setenv("KERNELS_HUB", "acme=https://bob:s3cret@hub.corp file:///srv/k")
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    code, found = examine(capsys)
    assert code == 0
    assert found["devices"] == [{"index": 0, "name": "Hopper", "arch": "9.0"}]
    assert {"url": "https://hub.corp", "owners": ["acme"]} in found["hubs"]
    origins = {entry["name"]: entry["origin"] for entry in found["settings"]}
    assert (origins["KERNELS_HUB"], origins["KERNELS_REF_TTL"]) == ("environment", "default")
    assert run(["doctor"]) == 0
    said = capsys.readouterr().out + json.dumps(found)
    assert "[environment]" in said
    assert "s3cret" not in said
    assert "hf_verysecret" not in said


def test_credentials_are_left_out_of_every_url():
    assert hide_credentials("a https://u:p@h/x http://t@h file:///a@b") == (
        "a https://h/x http://h file:///a@b"
    )
    rows = describe_settings({"HOME": "/nowhere", "HF_ENDPOINT": "https://u:p@hub.corp"})
    assert ("HF_ENDPOINT", "https://hub.corp", "environment") in rows
    assert all("u:p" not in value for _, value, _ in rows)
