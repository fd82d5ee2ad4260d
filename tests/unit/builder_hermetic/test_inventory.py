"""What a lock records of a machine; the system's compiler itself is an integration test."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kernel_builder import inventory
from kernel_builder.config.read import read_build
from kernel_builder.errors import ToolchainError
from kernel_builder.inventory import collect_inputs
from kernel_builder.plan import plan
from kernel_builder.planned import Host, VariantBuild
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import read_sources
from kernel_builder.toolchain.cuda import CudaToolchain
from kernel_builder.toolchain.cuda_home import CudaAnswer
from kernel_builder.toolchain.torch import read_torch
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

KITS = Path(__file__).parents[2] / "kits"
TORCH = TorchBuild(version="2.13.0+cpu", release=MajorMinor(2, 13))
HOST = Host(cpu="x86_64", os="linux", torch=TORCH, toolkits={BackendKind.CUDA: MajorMinor(13, 0)})


def variants_of(kit: str) -> tuple[VariantBuild, ...]:
    build = read_build(KITS / kit)
    return plan(build, read_sources(KITS / kit, build), host=HOST).variants


@dataclass
class Machine:
    settings: Settings
    torch: Path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    torch = tmp_path / "torch"
    (torch / "include").mkdir(parents=True)
    (torch / "include" / "a.h").write_text("1")
    (torch / "version.py").write_text("__version__ = '2.13.0+cpu'\n")
    monkeypatch.setattr(inventory, "get_torch", lambda: read_torch(torch))
    monkeypatch.setattr(inventory, "get_compiler", lambda _: None)
    monkeypatch.setattr(inventory, "_describe_compiler", lambda *_: {"kind": "system"})
    monkeypatch.setattr(inventory.platform, "machine", lambda: "x86_64")
    return Machine(settings=read_settings({"HOME": str(tmp_path), "PATH": ""}), torch=torch)


def test_python_alone_needs_the_builder_alone(machine: Machine) -> None:
    assert list(collect_inputs(variants_of("scale_noarch"), machine.settings)) == ["builder"]


def test_every_input_of_a_compiled_kernel(machine: Machine) -> None:
    found = collect_inputs(variants_of("add_cutlass"), machine.settings)
    assert set(found) == {"builder", "compiler", "cuda-13.0", "cutlass_3_8", "python", "torch"}
    assert found["torch"]["version"] == "2.13.0+cpu"
    # A lock is for every machine.
    assert set(found["cuda-13.0"]["wheels"]) >= {"x86_64", "aarch64"}
    for wheels in found["cuda-13.0"]["wheels"].values():
        assert all(len(each["sha256"]) == 64 for each in wheels.values())


def test_a_build_needs_its_toolkit_and_a_lock_has_all(machine: Machine) -> None:
    found = collect_inputs(variants_of("add_device"), machine.settings, every_toolkit=True)
    assert {"cuda-13.0", "cuda-13.2"} <= set(found)


def test_headers_are_hashed_once_for_an_installation(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    hash_tree: Callable[..., str] = inventory.hash_tree

    def counted(*arguments: object) -> str:
        calls.append(arguments)
        return hash_tree(*arguments)

    monkeypatch.setattr(inventory, "hash_tree", counted)
    variants = variants_of("add_device")
    one = collect_inputs(variants, machine.settings)
    assert collect_inputs(variants, machine.settings) == one
    assert len(calls) == 1
    (machine.torch / "include" / "a.h").write_text("2")
    (machine.torch / "version.py").write_text("__version__ = '2.13.1+cpu'\n")
    two = collect_inputs(variants, machine.settings)
    assert two["torch"]["sha256"] != one["torch"]["sha256"]


def test_a_users_toolkit_is_its_content_wherever_it_lies(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def lay_out(name: str) -> CudaToolchain:
        root = tmp_path / name
        for part in ("bin/nvcc", "lib64/libcudart.so.13", "include/cub/cub.cuh", "include/cuda.h"):
            (root / part).parent.mkdir(parents=True, exist_ok=True)
            (root / part).write_text(part)
        return CudaToolchain(
            root=root,
            version=MajorMinor(13, 0),
            nvcc=root / "bin" / "nvcc",
            include=root / "include",
            cudart=root / "lib64" / "libcudart.so.13",
            identity=name,
            answer=CudaAnswer(release="13.0.88", programs=(root / "bin" / "nvcc",)),
        )

    def describe(cuda: CudaToolchain) -> dict[str, str]:
        monkeypatch.setattr(inventory, "get_cuda", lambda _: cuda)
        settings = replace(machine.settings, cuda_home=cuda.root)
        return collect_inputs(variants_of("add_device"), settings)["cuda-13.0"]

    one = lay_out("one")
    before = describe(one)
    assert before["version"] == "13.0.88"
    assert describe(lay_out("two")) == before
    # A package of headers alone is newer; the compiler, and what tells it from others, is the same.
    (one.include / "cub" / "cub.cuh").write_text("newer")
    assert describe(one)["sha256"] != before["sha256"]


def test_a_dependency_from_nowhere_cannot_be_locked(machine: Machine, tmp_path: Path) -> None:
    variants = [replace(each, depends=("cutlass_4_0",)) for each in variants_of("add_device")]
    with pytest.raises(ToolchainError, match=r"\[sources\.cutlass_4_0\]"):
        collect_inputs(variants, machine.settings)
