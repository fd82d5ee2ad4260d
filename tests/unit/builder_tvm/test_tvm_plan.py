"""Which variants a kernel of TVM FFI has, and what each is made of; torch plays no part in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.cli.lint_abi import lint_abi
from kernel_builder.cli.plan import plan as plan_command
from kernel_builder.config.model import Build
from kernel_builder.config.read import parse_build, read_build
from kernel_builder.errors import ProjectError
from kernel_builder.gate.story import choose_variants
from kernel_builder.inventory import collect_inputs
from kernel_builder.matrix import list_possible
from kernel_builder.plan import plan
from kernel_builder.planned import Host, Plan
from kernel_builder.settings import read_settings
from kernel_builder.sources import SourceFile, SourceSet, listed_paths, read_sources
from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor

KIT = Path(__file__).parents[2] / "kits" / "tvm_add"
CPU, CUDA = BackendKind.CPU, BackendKind.CUDA
# No torch.
HOST = Host(cpu="x86_64", os="linux", torch=None, toolkits={CUDA: MajorMinor(13, 0)})
NAMES = ["tvm-ffi01-cpu-x86_64-linux", "tvm-ffi01-cu130-x86_64-linux"]


def plan_kit(host: Host = HOST) -> Plan:
    build = read_build(KIT)
    return plan(build, read_sources(KIT, build), host=host)


def plan_text(src: str, components: str = "", backends: str = '"cpu", "cuda"') -> Plan:
    build = parse_build(
        f'[general]\nname = "one"\nversion = 1\nedition = 5\nlicense = "MIT"\n'
        f"backends = [{backends}]\n[tvm-ffi]\nsrc = {src}\n{components}".encode()
    )
    return plan(build, sources_of(build), host=HOST)


def sources_of(build: Build) -> SourceSet:
    files = tuple(SourceFile(path=path, sha256=path) for path in listed_paths(build))
    return SourceSet(listed=files, extension=())


def test_a_kernel_is_planned_for_each_backend_where_torch_is_not_installed() -> None:
    made = plan_kit()
    assert [str(each.variant) for each in made.variants] == NAMES
    cpu, cuda = made.variants
    assert (cpu.tvm_ffi, cpu.torch, cpu.stable_abi) == (MajorMinor(0, 1), None, None)
    assert cpu.library == f"{cpu.op_id}.so"
    assert cpu.op_id.startswith("_tvm_add_cpu_")
    assert cuda.archs[-1] == "12.1+PTX"
    (rocm,) = made.skipped
    assert (
        str(rocm)
        == "rocm: not built here: no [kernel] table and no file of [tvm-ffi] is for rocm: "
        "write one, or take rocm out of general.backends"
    )


def test_each_backend_has_its_own_functions_since_nobody_dispatches() -> None:
    cpu, cuda = plan_kit().variants
    assert [unit.source for unit in cpu.units][1:] == ["csrc/add_cpu.cpp"]
    assert [unit.source for unit in cuda.units][1:] == ["csrc/add_cuda.cu"]
    assert cpu.headers == cuda.headers == ("csrc/add.h",)
    assert all("torch" not in unit.depends for each in (cpu, cuda) for unit in each.units)


def test_a_compiler_that_is_missing_is_told_as_for_any_kernel() -> None:
    host = replace(HOST, missing={CPU: "g++ not found"})
    assert "cpu: not built here: g++ not found" in map(str, plan_kit(host).skipped)


def test_a_project_without_components_is_its_binding() -> None:
    made = plan_text('["tvm-ffi-ext/one.cpp"]')
    assert [str(each.variant) for each in made.variants] == NAMES[:1]
    assert [unit.source for unit in made.variants[0].units] == ["tvm-ffi-ext/one.cpp"]
    assert [each.backend for each in made.skipped] == [CUDA]


def test_device_code_of_the_binding_is_compiled_for_the_toolkits_capabilities() -> None:
    made = plan_text('["tvm-ffi-ext/one.cu"]', backends='"cuda"')
    (cuda,) = made.variants
    (unit,) = cuda.units
    assert unit.source == "tvm-ffi-ext/one.cu"
    assert unit.archs == cuda.archs
    assert "9.0" in unit.archs


def test_a_file_of_two_backends_is_compiled_apart_and_torch_brings_nothing() -> None:
    shared = (
        '[kernel.a]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["shared.cpp"]\n'
        '[kernel.b]\nbackend = "cuda"\ndepends = []\nsrc = ["shared.cpp", "b.cu"]\n'
        'cxx-flags = ["-DB"]\n'
    )
    made = plan_text('["tvm-ffi-ext/one.cpp"]', shared)
    cpu, cuda = made.variants
    assert cpu.units[1].cxx_flags == ()
    assert cuda.units[1].cxx_flags == ("-DB",)
    (note,) = [note for note in made.notes if "build.toml:" in note]
    assert "kernel.a.depends" in note
    assert '"torch" brings nothing to a kernel of TVM FFI' in note


def test_every_source_and_the_binding_are_in_the_id() -> None:
    build = read_build(KIT)
    sources = read_sources(KIT, build)
    before = {each.backend: each.op_id for each in plan(build, sources, host=HOST).variants}

    def changed(path: str) -> set[BackendKind]:
        listed = tuple(
            replace(file, sha256="0" * 64) if file.path == path else file for file in sources.listed
        )
        after = plan(build, replace(sources, listed=listed), host=HOST).variants
        return {each.backend for each in after if each.op_id != before[each.backend]}

    assert changed("tvm-ffi-ext/tvm_ffi_binding.cpp") == {CPU, CUDA}
    assert changed("csrc/add.h") == {CPU, CUDA}
    assert changed("csrc/add_cuda.cu") == {CUDA}
    # A project that is its binding alone, too.
    ids = {plan_text(f'["tvm-ffi-ext/{name}.cpp"]').variants[0].op_id for name in ("a", "b")}
    assert len(ids) == 2


def test_no_torch_decides_which_variants_there_are() -> None:
    build = read_build(KIT)
    pinned = (MajorMinor(13, 0), MajorMinor(13, 3))
    found = list_possible(build, read_sources(KIT, build), host=HOST, pinned=pinned)
    here = {each.variant: each.needs for each in found if "x86_64" in each.variant}
    assert here[NAMES[0]] == here[NAMES[1]] == ()
    assert here["tvm-ffi01-cu133-x86_64-linux"] == ("--cuda 13.3",)
    assert "--cuda-home" in here["tvm-ffi01-cu126-x86_64-linux"][0]
    assert len(here) == len(set(here))


def test_a_lock_has_tvm_ffi_and_no_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kernel_builder.inventory.get_compiler", lambda _: None)
    monkeypatch.setattr("kernel_builder.inventory._describe_compiler", lambda *_: {})
    settings = read_settings({"HOME": str(tmp_path), "PATH": ""})
    found = collect_inputs(plan_kit().variants[:1], settings)
    assert "torch" not in found
    assert found["tvm-ffi"]["kind"] == "headers"
    assert found["tvm-ffi"]["version"].startswith("0.1.")


def test_the_plan_is_shown_by_the_library_and_not_by_torchs_namespace() -> None:
    done = CliRunner().invoke(plan_command, [str(KIT), "--backend", "cpu"])
    assert done.exit_code == 0
    assert "TVM FFI 0.1" in done.output
    assert "torch.ops" not in done.output


def test_what_is_not_built_yet_is_refused_in_words(tmp_path: Path) -> None:
    made = tmp_path / "build" / NAMES[0]
    made.mkdir(parents=True)
    (made / "metadata.json").write_text(
        '{"name": "one", "id": "_one_cpu_1", "version": 1, "license": "MIT", "python-depends": [],'
        ' "backend": {"type": "cpu"}}'
    )
    with pytest.raises(ProjectError, match="without --gate"):
        choose_variants(tmp_path, "cpu")
    done = CliRunner().invoke(lint_abi, [str(KIT)])
    assert isinstance(done.exception, ProjectError)
    assert "uses nothing of torch" in str(done.exception)
