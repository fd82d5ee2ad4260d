"""All variants that a project can have, and what each needs."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.config.read import read_build
from kernel_builder.known import read_known
from kernel_builder.matrix import list_possible
from kernel_builder.plan import plan
from kernel_builder.planned import Host
from kernel_builder.scaffold import plan_project, write_project
from kernel_builder.sources import read_sources
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

KITS = Path(__file__).parents[2] / "kits"
HOST = Host(
    cpu="x86_64",
    os="linux",
    torch=TorchBuild(version="2.13.0+cpu", release=MajorMinor(2, 13)),
    missing={BackendKind.ROCM: "needs hipcc 7.1 or newer"},
    toolkits={BackendKind.CUDA: MajorMinor(13, 0)},
)
PINNED = (MajorMinor(13, 0), MajorMinor(13, 2), MajorMinor(13, 3))


def needs(kit: str, host: Host = HOST) -> dict[str, tuple[str, ...]]:
    project = KITS / kit
    build = read_build(project)
    found = list_possible(build, read_sources(project, build), host=host, pinned=PINNED)
    assert [each.variant for each in found] == sorted(each.variant for each in found)
    return {each.variant: each.needs for each in found}


def test_a_stable_project_has_one_variant_for_each_toolkit() -> None:
    found = needs("add_device")
    assert {name.removeprefix("torch-stable-abi210-") for name in found if "x86_64" in name} == {
        "cpu-x86_64-linux",
        "cu126-x86_64-linux",
        "cu130-x86_64-linux",
        "cu132-x86_64-linux",
        "cu133-x86_64-linux",
    }
    assert found["torch-stable-abi210-cpu-x86_64-linux"] == ()
    assert found["torch-stable-abi210-cu130-x86_64-linux"] == ()
    assert found["torch-stable-abi210-cu132-x86_64-linux"] == ("--cuda 13.2",)
    (old,) = found["torch-stable-abi210-cu126-x86_64-linux"]
    assert "--cuda-home" in old
    for backend in ("cpu", "cu130"):
        assert found[f"torch-stable-abi210-{backend}-aarch64-linux"] == (
            "a machine with aarch64, or a cross compiler: --cpu aarch64",
        )


def test_the_full_interface_has_one_for_each_torch_that_exists() -> None:
    found = needs("add_cuda_full")
    assert found["torch213-cxx11-cu130-x86_64-linux"] == ()
    (other,) = found["torch212-cxx11-cu130-x86_64-linux"]
    assert other == "--torch 2.12"
    # What is installed is needed where no headers are pinned, and not where they are.
    assert needs("add_cuda_full", replace(HOST, torch=None))[
        "torch213-cxx11-cu130-x86_64-linux"
    ] == ("--torch 2.13",)
    # No torch is built with CUDA 13.3.
    assert not [name for name in found if "cu133" in name]


def test_what_is_built_on_no_such_machine_says_what_it_needs_once(tmp_path: Path) -> None:
    project = plan_project(name="me/own", backends=["cpu", "metal", "rocm"], licence="MIT")
    write_project(project, tmp_path / "own")
    build = read_build(tmp_path / "own")
    sources = read_sources(tmp_path / "own", build)
    host = replace(HOST, missing=read_known().uncompiled)
    found = {
        each.variant: each.needs
        for each in list_possible(build, sources, host=host, pinned=PINNED)
        if each.backend is not BackendKind.CPU
    }
    metal, *rocm = sorted(found)
    assert (metal, {len(each) for each in found.values()}) == (
        "torch-stable-abi210-metal-aarch64-darwin",
        {1},
    )
    assert found[metal][0].startswith("macOS with Xcode, which this builder does not start yet")
    assert rocm
    assert all(found[name][0].startswith("hipcc 7.1 or newer, ") for name in rocm)


def test_a_toolkit_of_the_users_is_in_it() -> None:
    own = replace(HOST, toolkits={BackendKind.CUDA: MajorMinor(12, 4)})
    assert needs("add_device", own)["torch-stable-abi210-cu124-x86_64-linux"] == ()
    # A torch for CUDA 12.6 loads it.
    assert needs("add_cuda_full", own)["torch213-cxx11-cu124-x86_64-linux"] == ()
    assert "--cuda 13.0" in needs("add_device", own)["torch-stable-abi210-cu130-x86_64-linux"]
    newer = replace(HOST, toolkits={BackendKind.CUDA: MajorMinor(13, 3)})
    assert not [name for name in needs("add_cuda_full", newer) if "cu133" in name]


def test_a_build_that_no_official_torch_loads_is_told() -> None:
    build = read_build(KITS / "add_cuda_full")
    sources = read_sources(KITS / "add_cuda_full", build)

    def told(version: MajorMinor) -> list[str]:
        host = replace(HOST, toolkits={BackendKind.CUDA: version})
        notes = plan(build, sources, host=host).notes
        return [note for note in notes if "official" in note]

    (said,) = told(MajorMinor(13, 3))
    assert said.endswith(
        "official torch 2.13 is for cuda 12.6, 13.0, 13.2; none of them loads what is built with 13.3"
    )
    for version in (MajorMinor(12, 4), MajorMinor(13, 0)):
        assert not told(version)


def test_a_project_without_machine_code_needs_nothing() -> None:
    assert needs("scale_noarch") == {"torch-cpu": ()}


def test_what_is_missing_is_said_in_the_words_of_the_plan() -> None:
    found = needs("add_stable")
    rocm = [name for name in found if "rocm" in name]
    assert rocm
    assert all(found[name] == ("hipcc 7.1 or newer",) for name in rocm)
    without = Host(cpu="x86_64", os="linux", torch=None)
    assert needs("add_stable", without)["torch-stable-abi210-cpu-x86_64-linux"] == ("torch",)


@pytest.mark.parametrize("kit", ["two_cuda", "throw_full", "modern_cpp"])
def test_every_kit_has_a_matrix(kit: str) -> None:
    assert needs(kit)
