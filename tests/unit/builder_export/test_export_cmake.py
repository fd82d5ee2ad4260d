"""CMakeLists.txt says what the build does: the same files, flags, macros and architectures."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.config.read import read_build
from kernel_builder.errors import ExportError
from kernel_builder.export.backends import BackendExport, plan_export
from kernel_builder.export.cmake import format_cmake
from kernel_builder.export.quote import quote_cmake, quote_option, quote_path
from kernel_builder.export.units import sort_flags
from kernel_builder.sources import read_sources
from kernel_builder.toolchain.cuda import read_optional_flags
from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor

KITS = Path(__file__).parents[2] / "kits"
COMPILED = ["add_device", "add_stable", "modern_cpp", "throw_full", "two_cuda", "add_cutlass"]


def export(project: Path) -> tuple[str, tuple[BackendExport, ...]]:
    build = read_build(project)
    backends = plan_export(build, read_sources(project, build)).backends
    return format_cmake(build, backends, project=project, digest="0", header="#"), backends


def section(text: str, backend: str) -> str:
    """Return the part of a CMakeLists.txt that is for a backend."""
    _, _, rest = text.partition(f'(KERNEL_CHOSEN STREQUAL "{backend}")\n')
    return re.split(r"^(?:elseif|endif)\(", rest, maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("kit", COMPILED)
def test_all_that_is_planned_is_there(kit: str) -> None:
    text, backends = export(KITS / kit)
    for each in backends:
        part = section(text, each.backend.value)
        if each.build.units:
            assert f"kernel_library({each.build.op_id} TORCH torch" in part
        for unit in each.build.units:
            assert re.search(rf"^ +{re.escape(unit.source)}\)?$", part, re.MULTILINE) or (
                f"PRIVATE {unit.source})" in part
            )
            flags = sort_flags(unit, each.build, KITS / kit)
            for flag in (*flags.options, *(flag for flag, _ in flags.author)):
                assert quote_option(flag)[1:-1] in part
            assert all(quote_option(name)[1:-1] in part for name in flags.definitions)
            assert all(f"/{path}" in part for path in flags.include)


def test_the_bytes_are_the_same_each_time_and_name_no_place() -> None:
    first, _ = export(KITS / "two_cuda")
    assert first == export(KITS / "two_cuda")[0]
    assert str(KITS) not in first
    assert "/elsewhere" not in first


def test_a_file_has_the_capabilities_that_its_toolkit_compiles() -> None:
    text, (cuda,) = export(KITS / "two_cuda")
    newest, *_ = cuda.toolkits
    assert newest.since == MajorMinor(13, 2)
    assert "csrc/newest_step.cu" in newest.archs
    assert all("csrc/newest_step.cu" not in each.archs for each in cuda.toolkits[1:])
    part = section(text, "cuda")
    guard = "if(NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.2)\n    target_sources("
    assert guard in part
    assert part.count("-gencode=arch=compute_100,code=[sm_100,compute_100]") == 2
    assert "-gencode=arch=compute_90a,code=sm_90a" in part
    assert "message(FATAL_ERROR" in part


def test_older_toolkits_get_the_kinds_of_code_that_they_have(project: Path) -> None:
    file = project / "build.toml"
    text = re.sub(
        r"cuda-capabilities = .*", 'cuda-capabilities = ["9.0a", "10.0f"]', file.read_text()
    )
    file.write_text(text)
    part = section(export(project)[0], "cuda")
    conditions = re.findall(r"VERSION_LESS ([\d.]+)\)\n((?:.*gencode.*\n|    set.*\n)*)", part)
    found = {since: set(re.findall(r"code=sm_(\w+)", lines)) for since, lines in conditions}
    assert found == {"12.9": {"90a", "100f"}, "12.0": {"90a"}}


def test_a_dropped_capability_is_named_without_a_torch_that_is_made_up(project: Path) -> None:
    build = read_build(project)
    notes = plan_export(build, read_sources(project, build)).notes
    assert [note for note in notes if "10.3a" in note and note.startswith("cuda: ")]
    assert not [note for note in notes if "2.99" in note or "299" in note]


def test_includes_of_one_component_are_not_those_of_another() -> None:
    part = section(export(KITS / "two_cuda")[0], "cuda")
    for name in ("old", "new"):
        assert (
            f"set_property(SOURCE csrc/{name}/{name}_step.cu PROPERTY INCLUDE_DIRECTORIES\n"
            f'    "${{CMAKE_CURRENT_SOURCE_DIR}}/csrc/{name}")'
        ) in part


def test_flags_that_change_nothing_are_for_an_nvcc_that_knows_them(project: Path) -> None:
    file = project / "build.toml"
    flags = '["-lineinfo", "--compress-mode=size", "-split-compile", "2"]'
    file.write_text(f"{file.read_text()}cuda-flags = {flags}\n")
    part = section(export(project)[0], "cuda")
    assert (
        """
    "-lineinfo"
    "$<$<BOOL:${KERNEL_NVCC_compress-mode}>:--compress-mode=size>"
    "$<$<BOOL:${KERNEL_NVCC_split-compile}>:-split-compile>"
    "$<$<BOOL:${KERNEL_NVCC_split-compile}>:2>")"""
        in part
    )
    macros = files("kernel_builder") / "templates" / "export" / "kernel.cmake"
    asked = re.search(r"ITEMS (compress-mode[^)]*)\)", macros.read_text("utf-8"))
    assert asked is not None
    assert set(asked[1].split()) == read_optional_flags()


def test_the_bounds_of_torch_and_cuda_are_asked_for(project: Path) -> None:
    file = project / "build.toml"
    text = file.read_text().replace("[torch]", '[torch]\nminver = "2.9"\nmaxver = "2.12"', 1)
    text = text.replace("[torch]", '[general.cuda]\nminver = "12.4"\nmaxver = "13.0"\n\n[torch]')
    binding = project / "torch-ext" / "torch_binding.cpp"
    binding.write_text(f"#include <torch/extension.h>\n{binding.read_text()}")
    file.write_text(text)
    made, backends = export(project)
    assert "kernel_require_torch(MINVER 2.9 MAXVER 2.12)" in section(made, "cpu")
    assert "kernel_require_cuda(MINVER 12.4 MAXVER 13.0)" in section(made, "cuda")
    assert "TORCH torch torch_cpu c10 torch_cuda c10_cuda)" in section(made, "cuda")
    assert backends[1].build.stable_abi is None


def test_unique_ids_are_for_all_backends(project: Path) -> None:
    build = read_build(project)
    found = plan_export(build, read_sources(project, build), unique="my-id")
    assert [each.build.op_id for each in found.backends] == [
        "_add_device_cpu_my_id",
        "_add_device_cuda_my_id",
    ]
    for wrong in ("", "a b", 'x"', "ü", "x" * 65):
        with pytest.raises(ExportError, match="C\\+\\+ name"):
            plan_export(build, read_sources(project, build), unique=wrong)


def test_one_backend_alone(project: Path) -> None:
    build = read_build(project)
    found = plan_export(build, read_sources(project, build), backends=[BackendKind.CUDA])
    assert [each.backend for each in found.backends] == [BackendKind.CUDA]


def test_a_project_that_nothing_here_can_compile_is_refused(project: Path) -> None:
    file = project / "build.toml"
    text = file.read_text().replace('backends = ["cpu", "cuda"]', 'backends = ["rocm"]')
    text = re.sub(r"\[kernel.add_cpu\].*", "", text, flags=re.DOTALL)
    file.write_text(
        f'{text}\n[kernel.r]\nbackend = "rocm"\ndepends = ["torch"]\nsrc = ["csrc/add_cpu.cpp"]\n'
    )
    build = read_build(project)
    with pytest.raises(ExportError, match="rocm: not built here: needs hipcc"):
        plan_export(build, read_sources(project, build))


def read_quoted(text: str) -> str:
    """Read an argument of CMake as its manual says."""
    if not text.startswith('"'):
        return text
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)


@given(st.text(st.characters(blacklist_characters="\n\0", blacklist_categories=["Cs"])))
def test_an_argument_is_read_back(text: str) -> None:
    quoted = quote_cmake(text)
    assert read_quoted(quoted) == text
    if not quoted.startswith('"'):
        assert re.fullmatch(r"[\w./+-]+", quoted, re.ASCII)


@given(st.text(st.sampled_from("ab $<>{};,'\"\\#()1:"), max_size=20).map("-D".__add__))
def test_an_option_is_read_back(flag: str) -> None:
    element = read_quoted(quote_option(flag))
    # What CMake does next: parts the list at bare semicolons, then evaluates expressions.
    assert not re.search(r"(?<!\\);", element)
    assert element.replace("\\;", ";").replace("$<1:$><", "$<") == flag


@pytest.mark.parametrize("path", ["a;b.cpp", "a$<b.cpp", "a\nb.cpp"])
def test_a_file_that_cmake_cannot_name_is_refused(path: str) -> None:
    with pytest.raises(ExportError, match="rename it"):
        quote_path(path)


@pytest.mark.parametrize("flag", ["-DX=[", "-DX=a\nb"])
def test_a_flag_that_cmake_cannot_hand_on_is_refused(flag: str) -> None:
    with pytest.raises(ExportError, match="header of the project"):
        quote_option(flag)
