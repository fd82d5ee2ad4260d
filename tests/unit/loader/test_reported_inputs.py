"""The very input of public reports, made small: what came in there, and what ought to have come out.

`tests/user_pain.toml` lists the reports.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType

import pytest

import kernels
from kernel_spec.backend import Backend, BackendKind
from kernel_spec.compat import Accepted, Rejected, decide
from kernel_spec.metadata import Metadata
from kernel_spec.system import Device, System, TorchBuild
from kernel_spec.version import MajorMinor
from kernels.cli import run
from kernels.errors import (
    HubUnreachableError,
    KernelImportError,
    NotCachedError,
    NoVariantError,
)
from kernels.fit import judge_devices
from kernels.linkage.host import Host
from kernels.linkage.judge import judge_libraries

LINKAGE = Path(__file__).parents[2] / "fixtures" / "linkage"
linux = pytest.mark.skipif(sys.platform != "linux", reason="ELF libraries are Linux's")


def machine(torch="2.13.0+cu130", backend="cuda", version=(13, 0), **changes):
    release = MajorMinor(*map(int, torch.split(".")[:2]))
    prerelease = any(letter in torch.partition("+")[0] for letter in "abd")
    system = System(
        torch=TorchBuild(torch, release, prerelease=prerelease, cxx11_abi=True),
        backend=Backend(BackendKind(backend), MajorMinor(*version) if version else None),
        cpu="x86_64",
        os="linux",
        python=MajorMinor(3, 12),
        glibc=MajorMinor(2, 36),
    )
    return replace(system, **changes)


def reason_of(system, name):
    [decision] = decide(system, [name])
    return decision.reason if isinstance(decision, Rejected) else ""


FA3 = Metadata(
    name="flash-attn3",
    id="_flash_attn3",
    version=1,
    license="",
    backend=BackendKind.CUDA,
    archs=("8.0", "9.0a"),
)
FA2 = replace(FA3, name="flash-attn2", archs=("8.0", "9.0"))


@pytest.mark.parametrize(
    ("metadata", "device", "fits"),
    [
        # kernels 707, nanochat 820: it loaded, and the first launch ended the process.
        (FA3, Device("10.0", "NVIDIA B200", 0), False),
        (FA3, Device("9.0", "NVIDIA H100", 0), True),
        # flash-attention 2168, 1763: "no kernel image is available" at the first call.
        (FA2, Device("12.0", "NVIDIA GeForce RTX 5090", 0), False),
        (FA2, Device("11.0", "NVIDIA Thor", 0), False),
        (
            replace(FA2, archs=("8.0", "9.0+PTX")),
            Device("12.0", "NVIDIA GeForce RTX 5090", 0),
            True,
        ),
        # flash-attention 879: GH200 is a Hopper.
        (FA3, Device("9.0", "NVIDIA GH200 480GB", 0), True),
    ],
)
def test_a_device_without_code_is_named_before_anything_runs(metadata, device, fits):
    reason = judge_devices(metadata, machine(devices=(device,)))
    assert (reason is None) is fits
    if reason is not None:
        assert f"{device.name} 0 ({device.arch})" in reason.text
        assert all(arch in reason.text for arch in metadata.archs)


@pytest.mark.parametrize(
    ("torch", "name", "words"),
    [
        # flash-attention 836, flashinfer 911: torches of NVIDIA's containers.
        ("2.1.0a0+32f93b1", "torch21-cxx11-cu122-x86_64-linux", ["2.1.0a0+32f93b1", "pre-release"]),
        (
            "2.5.0a0+872d972e41.nv24.08",
            "torch25-cxx11-cu126-x86_64-linux",
            ["nv24.08", "pre-release"],
        ),
        # xformers 982: built for 2.4.0, refused with 2.4.1 and with another build of the same CUDA.
        ("2.4.1+cu121", "torch24-cxx11-cu121-x86_64-linux", []),
        ("2.4.0", "torch24-cxx11-cu118-x86_64-linux", ["11.8", "12.1"]),
        # vllm-omni 6971: the client of that time passed over names that it did not know, without a word.
        ("2.13.0+cu130", "torch-stable-abi29-cu130-x86_64-linux", []),
    ],
)
def test_a_torch_is_compared_as_what_it_is(torch, name, words):
    cuda = (
        (13, 0)
        if "cu130" in torch
        else (12, 6)
        if "nv24" in torch
        else (12, 2)
        if "a0" in torch
        else (12, 1)
    )
    reason = str(reason_of(machine(torch, version=cuda), name))
    assert bool(reason) is bool(words)
    assert all(word in reason for word in words)


def test_no_build_for_a_nightly_of_rocm_says_what_was_built_and_what_is_here():
    """kernels 502: gfx1151 with a torch of TheRock; the only answer was that nothing fits."""
    system = machine("2.10.0a0+rocm7.10.0a20251120", "rocm", (7, 10))
    names = [f"torch29-cxx11-rocm{each}-x86_64-linux" for each in ("63", "64")]
    error = NoVariantError("acme/toy", "this system", decide(system, names))
    for name, built in zip(names, ("6.3", "6.4"), strict=True):
        [line] = [line for line in str(error).splitlines() if name in line]
        assert f"built for rocm {built}" in line
        assert "2.10.0a0+rocm7.10.0a20251120, a pre-release" in line
    # The stable interface holds for pre-releases of a later one, and code for any torch always does.
    assert isinstance(decide(system, ["torch-rocm"])[0], Accepted)


@linux
def test_a_library_for_an_older_form_of_a_function_is_told_from_torch_s():
    """mamba 750, flash-attention 919: undefined symbol: _ZN3c104cuda9SetDeviceEi."""
    host = Host(system=machine(), torch_libraries=(LINKAGE / "libc10_cuda.so",))
    [reason] = judge_libraries(LINKAGE, ["set_device.so"], host).reasons
    assert reason.kind == "torch-symbols"
    assert "c10::cuda::SetDevice" in reason.text
    assert "torch 2.13.0+cu130" in reason.text


@linux
@pytest.mark.parametrize(
    ("glibc", "fits"),
    [((2, 28), False), ((2, 31), False), ((2, 36), True)],
    ids=["RHEL 8", "Debian 11 and Ubuntu 20.04", "Debian 12"],
)
def test_a_library_of_a_later_distribution(glibc, fits):
    """flash-attention 1708, 1762: /lib64/libc.so.6: version `GLIBC_2.32' not found."""
    host = Host(system=machine(glibc=MajorMinor(*glibc)), torch_libraries=())
    reasons = judge_libraries(LINKAGE, ["glibc_2_32.so"], host).reasons
    assert [reason.kind for reason in reasons] == ([] if fits else ["glibc"])
    for reason in reasons:
        assert "needs glibc 2.32" in reason.text
        assert f"this system has {glibc[0]}.{glibc[1]}" in reason.text


@pytest.mark.parametrize("status", [401, 403, 503])
def test_a_download_that_fails_says_what_the_hub_said(web, publisher, status, monkeypatch, capsys):
    """kernels 86: "check your connection", while a proxy had refused."""
    tmp_path = publisher.projects.parent
    publisher.publish("acme/toy")
    publisher.publish("acme/other")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.kernels.dependencies]\n"acme/toy" = 1\n"acme/other" = 1\n'
    )
    assert run(["lock", str(tmp_path)]) == 0
    capsys.readouterr()
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "empty"))
    web.fault = lambda path: (status, {}, b"<html>proxy</html>") if "/acme/toy/" in path else None
    assert run(["download", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"{web.URL}/" in said
    assert str(status) in said
    assert "acme/toy" in said
    web.fault = lambda path: None
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lock = tmp_path / "kernels.lock"
    assert kernels.load_kernel("acme/other", lockfile=lock).VALUE == 1
    # text-generation-inference 3090: what is locked and not here says how to get it.
    with pytest.raises(NotCachedError, match="kernels download"):
        kernels.load_kernel("acme/toy", lockfile=lock)


def test_a_python_package_that_is_on_no_list(publisher):
    """kernels 444: cuda-tile could not even be declared."""
    publisher.publish(packages=("cuda-tile",))
    with pytest.raises(KernelImportError, match=r"cuda-tile.*pip install cuda-tile"):
        kernels.get_kernel("acme/toy")


def test_a_path_for_macos_alone_names_its_variant_and_not_a_file(make_variant, tmp_path):
    """kernels 753: on another machine, it was metadata.json that was said to be missing."""
    make_variant(tmp_path / "build" / "torch29-metal-aarch64-darwin", backend=BackendKind.METAL)
    with pytest.raises(NoVariantError) as caught:
        kernels.get_local_kernel(tmp_path, backend="metal")
    # Which reason comes first depends on whether there is a torch here.
    assert "\n  torch29-metal-aarch64-darwin: " in str(caught.value)
    assert "metadata.json" not in str(caught.value)


@pytest.mark.parametrize(
    ("looked_up", "missing"),
    [
        # transformers 39945: a branch had moved on to other names.
        ("make_default_matmul_mxfp4_w_layout", "make_default_matmul_mxfp4_w_layout"),
        # diffusers PR 14016: names below a module that this version does not have.
        ("flash_attn_interface._flash_attn_forward", "flash_attn_interface"),
    ],
)
def test_a_name_that_the_kernel_lacks_is_told_with_the_kernel(publisher, looked_up, missing):
    commit = publisher.publish()
    found = kernels.get_kernel("acme/toy", version=1)
    with pytest.raises(AttributeError) as caught:
        attrgetter(looked_up)(found)
    said = str(caught.value)
    assert (
        f"The kernel acme/toy (version 1, commit {commit[:12]}, torch-cpu) has no {missing!r}"
        in said
    )
    assert "It has: VALUE, double." in said
    assert caught.value.name == missing
    assert not hasattr(found, "__wrapped__")


def test_names_that_are_there_are_looked_up_as_fast_as_in_any_module(publisher):
    """Python has a short way for modules of its own class alone, and calls of kernels are counted in microseconds."""
    publisher.publish()
    assert type(kernels.get_kernel("acme/toy")) is ModuleType


def test_a_kernel_may_answer_for_names_itself(publisher):
    source = (
        "def __getattr__(name):\n"
        "    if name == 'late':\n        return 7\n"
        "    raise AttributeError(f'ask for late, not {name}')\n"
    )
    publisher.publish(variants={"torch-cpu": {"__init__.py": source}})
    kernel = kernels.get_kernel("acme/toy")
    assert kernel.late == 7
    with pytest.raises(AttributeError, match="ask for late, not early"):
        _ = kernel.early


@pytest.mark.parametrize("setting", ["HF_HUB_OFFLINE", "none"])
def test_where_a_kernel_cannot_be_had_a_copy_on_disk_is_offered(
    monkeypatch, make_variant, tmp_path, setting
):
    """vllm-omni 7072: a shim was written for natten before LOCAL_KERNELS was found."""
    monkeypatch.setenv("KERNELS_HUB", "http://127.0.0.1:9")
    monkeypatch.setattr("kernels.hub_http.time.sleep", lambda seconds: None)
    if setting != "none":
        monkeypatch.setenv(setting, "1")
    with pytest.raises((NotCachedError, HubUnreachableError), match="LOCAL_KERNELS"):
        kernels.get_kernel("shi-labs/natten", version=1)
    make_variant(tmp_path / "natten" / "build" / "torch-cpu", name="natten")
    monkeypatch.setenv("LOCAL_KERNELS", f"shi-labs/natten={tmp_path / 'natten'}")
    assert kernels.get_kernel("shi-labs/natten", version=1).VALUE == 1


def test_a_mirror_that_sends_no_header_of_the_hub(web, publisher):
    """huggingface_hub 1796: Artifactory sends no X-Repo-Commit and an ETag of its own, and redirects."""
    publisher.publish()

    def mirror(path):
        if "/resolve/" in path and "?at=" not in path:
            return (
                302,
                {"location": f"{path}?at=cdn", "etag": '"5f3c-mirror"', "x-artifactory-id": "7"},
                b"",
            )
        return None

    web.fault = mirror
    assert kernels.get_kernel("acme/toy").VALUE == 1


def test_an_old_and_a_new_word_for_the_commit_of_a_build(make_variant, tmp_path):
    """kernels-community 969: a client of one release could not read the metadata of another."""
    for word in ("sha", "commit"):
        place = make_variant(tmp_path / word, digest=False)
        document = json.loads((place / "metadata.json").read_text())
        document["provenance"] = {
            "kernel-builder": {"version": "0.17.0", word: "1" * 40, "dirty": False},
            "kernel": {word: "2" * 40, "dirty": False},
        }
        (place / "metadata.json").write_text(json.dumps(document | {"of-tomorrow": {"a": [1]}}))
        assert kernels.get_local_kernel(place).VALUE == 1
