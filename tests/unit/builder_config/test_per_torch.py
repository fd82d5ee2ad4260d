"""Per-torch components: what build.toml may say of them, which libraries a plan has, and what they may register."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_builder import per_torch
from kernel_builder.check.finding import Finding
from kernel_builder.check.layout import check_layout
from kernel_builder.check.subject import Subject
from kernel_builder.config.model import Build
from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError
from kernel_builder.op_id import make_op_id
from kernel_builder.package import format_ops
from kernel_builder.per_torch import find_loadable
from kernel_builder.per_torch_check import has_conditions, judge_parts
from kernel_builder.plan import plan
from kernel_builder.planned import Host, Selection, VariantBuild
from kernel_builder.registrations import Registration, Registrations
from kernel_builder.sources import SourceFile, SourceSet, listed_paths
from kernel_spec.backend import BackendKind
from kernel_spec.metadata import Metadata
from kernel_spec.system import TorchBuild
from kernel_spec.variant import parse_variant
from kernel_spec.version import MajorMinor

TORCH = TorchBuild("2.13.0+cpu", MajorMinor(2, 13))
GPU_HOST = Host(
    cpu="x86_64", os="linux", torch=TORCH, toolkits={BackendKind.CUDA: MajorMinor(13, 0)}
)
TEXT = """\
[general]
name = "my-norm"
version = 1
edition = 5
license = "MIT"
backends = ["cuda", "cpu"]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.10"
noarch = ["cuda"]

[kernel.norm]
backend = "cuda"
depends = ["torch"]
src = ["csrc/norm.cu", "csrc/norm.h"]

[kernel.norm_node]
backend = "cuda"
depends = ["torch"]
per-torch = true
src = ["csrc/node.cpp", "csrc/node.h"]
cxx-flags = ["-DNODE"]
"""


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_build(text.encode())
    return str(caught.value).splitlines()


def sources_of(build: Build) -> SourceSet:
    full = {"csrc/node.cpp": "torch/library.h"}
    listed = tuple(
        SourceFile(path=path, sha256="0" * 64, full_abi_header=full.get(path))
        for path in listed_paths(build)
    )
    module = SourceFile(path="torch-ext/my_norm/__init__.py", sha256="1" * 64)
    return SourceSet(listed=listed, extension=(module,))


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three releases that headers are pinned of, newest first, as the builder's own are."""

    def read(machine: str) -> tuple[Any, ...]:
        versions = ("2.13.0", "2.12.1", "2.9.1") if machine == "x86_64" else ()
        return tuple(
            SimpleNamespace(version=text, release=MajorMinor(2, int(text.split(".")[1])))
            for text in versions
        )

    monkeypatch.setattr(per_torch, "read_torch_releases", read)


def plan_cuda(text: str = TEXT, host: Host = GPU_HOST) -> tuple[VariantBuild, VariantBuild]:
    """Return the compiled variant for CUDA and the one of Python alone."""
    build = parse_build(text.encode())
    made = plan(build, sources_of(build), host=host)
    noarch, compiled = sorted(
        (each for each in made.variants if each.backend is BackendKind.CUDA),
        key=lambda each: len(each.units),
    )
    return compiled, noarch


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (('stable-abi = "2.10"\n', ""), 20, "is for projects for torch's stable ABI"),
        (('"csrc/node.cpp"', '"csrc/node.cu"'), 22, "C++ alone"),
        (('"csrc/node.cpp", ', ""), 22, "nothing for each torch"),
        (("per-torch = true", 'per-torch = "yes"'), 21, "true or false"),
        (("edition = 5", "edition = 4"), 21, "per-torch"),
        (
            (
                'src = ["csrc/norm.cu", "csrc/norm.h"]\n',
                'src = ["csrc/norm.cpp"]\nper-torch = true\n',
            ),
            17,
            "work without its per-torch libraries",
        ),
    ],
)
def test_what_cannot_be_is_refused(change: tuple[str, str], line: int, said: str) -> None:
    text = TEXT.replace(*change)
    if "edition = 4" in text:
        text = text.replace('noarch = ["cuda"]\n', "\n")
    found = faults(text)
    assert any(each.startswith(f"build.toml:{line}: ") and said in each for each in found), found


@pytest.mark.usefixtures("pinned")
def test_each_pinned_torch_that_loads_the_variant_gets_a_library() -> None:
    compiled, _ = plan_cuda()
    assert str(compiled.variant) == "torch-stable-abi210-cu130-x86_64-linux"
    assert [part.library for part in compiled.per_torch] == [
        f"{compiled.op_id}.torch212.so",
        f"{compiled.op_id}.torch213.so",
    ]
    assert compiled.library == f"{compiled.op_id}.abi3.so"
    for part in compiled.per_torch:
        assert [unit.source for unit in part.units] == ["csrc/node.cpp"]
        assert part.units[0].cxx_flags == ("-DNODE",)
        assert part.headers == ("csrc/node.h",)
        assert part.op_id == compiled.op_id
        assert part.stable_abi is None


@pytest.mark.usefixtures("pinned")
def test_the_main_library_has_nothing_of_it() -> None:
    compiled, _ = plan_cuda()
    listed = {*(unit.source for unit in compiled.units), *compiled.headers}
    assert listed == {"torch-ext/binding.cpp", "csrc/norm.cu", "csrc/norm.h"}


@pytest.mark.usefixtures("pinned")
def test_a_plan_for_one_torch_has_its_library_alone() -> None:
    build = parse_build(TEXT.encode())
    for asked, expected in ((frozenset({MajorMinor(2, 12)}), ["2.12.1"]), (frozenset(), [])):
        selection = Selection(per_torch=asked)
        made = plan(build, sources_of(build), host=GPU_HOST, selection=selection)
        parts = [part for each in made.variants for part in each.per_torch]
        assert [part.torch.version for part in parts if part.torch is not None] == expected


@pytest.mark.usefixtures("pinned")
def test_they_see_the_headers_that_they_name_and_no_others() -> None:
    sources = "".join(
        f'\n[sources.{name}]\nurl = "https://h/{name}.zip"\nsha256 = "{"a" * 64}"\n'
        'include = ["."]\nlicense = "MIT"\n'
        for name in ("of_node", "of_main")
    )
    begin, node = TEXT.split("[kernel.norm_node]")
    text = (
        begin.replace('depends = ["torch"]', 'depends = ["torch", "of_main"]')
        + "[kernel.norm_node]"
        + node.replace('depends = ["torch"]', 'depends = ["torch", "of_node"]')
        + sources
    )
    compiled, _ = plan_cuda(text)
    for part in compiled.per_torch:
        assert part.depends == ("of_node", "torch")
        assert [source.name for source in part.sources] == ["of_node"]


@pytest.mark.usefixtures("pinned")
def test_bounds_of_torch_hold_for_them_too() -> None:
    compiled, _ = plan_cuda(
        TEXT.replace('stable-abi = "2.10"', 'stable-abi = "2.10"\nmaxver = "2.12"'),
        replace(GPU_HOST, torch=TorchBuild("2.12.0", MajorMinor(2, 12))),
    )
    assert [part.release for part in compiled.per_torch] == [MajorMinor(2, 12)]


@pytest.mark.usefixtures("pinned")
def test_a_processor_without_pinned_headers_is_told_of() -> None:
    build = parse_build(TEXT.encode())
    made = plan(build, sources_of(build), host=replace(GPU_HOST, cpu="aarch64"))
    compiled = next(each for each in made.variants if each.units)
    assert compiled.per_torch == ()
    assert any("no headers of torch are pinned for its processor" in note for note in made.notes)


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('stable-abi = "2.10"\nminver = "2.14"', "maxver of [torch] leave none of them"),
        ('stable-abi = "2.14"', "stable-abi, minver and maxver"),
    ],
)
def test_bounds_that_leave_no_release_are_told_of(change: str, said: str) -> None:
    build = parse_build(TEXT.replace('stable-abi = "2.10"', change).encode())
    newest = replace(GPU_HOST, torch=TorchBuild("2.14.0", MajorMinor(2, 14)))
    notes = plan(build, sources_of(build), host=newest).notes
    assert any("headers are pinned of torch 2.9, 2.12, 2.13" in n and said in n for n in notes)


@pytest.mark.usefixtures("pinned")
def test_a_variant_without_such_components_is_told_nothing() -> None:
    text = f'{TEXT}\n[kernel.plain]\nbackend = "cpu"\ndepends = ["torch"]\nsrc = ["csrc/cpu.cpp"]\n'
    build = parse_build(text.encode())
    made = plan(build, sources_of(build), host=GPU_HOST)
    assert {each.backend for each in made.variants if each.units} == set(build.general.backends)
    assert not any("no per-torch library" in note for note in made.notes)


@pytest.mark.usefixtures("pinned")
def test_only_the_very_release_loads_one() -> None:
    compiled, _ = plan_cuda()
    found = find_loadable(compiled, TorchBuild("2.12.0+cu130", MajorMinor(2, 12)))
    assert found is not None
    assert found.release == MajorMinor(2, 12)
    assert find_loadable(compiled, TorchBuild("2.11.0", MajorMinor(2, 11))) is None
    nightly = TorchBuild("2.12.0.dev20250101", MajorMinor(2, 12), prerelease=True)
    assert find_loadable(compiled, nightly) is None
    assert find_loadable(compiled, None) is None


@pytest.mark.usefixtures("pinned")
def test_their_sources_count_in_the_id_of_the_ops() -> None:
    build = parse_build(TEXT.encode())
    sources = sources_of(build)
    changed = replace(
        sources,
        listed=tuple(
            replace(each, sha256="2" * 64) if each.path == "csrc/node.cpp" else each
            for each in sources.listed
        ),
    )
    before, after = (
        make_op_id(build, each, BackendKind.CUDA, build.components) for each in (sources, changed)
    )
    assert before != after


@pytest.mark.usefixtures("pinned")
def test_every_variant_of_the_project_has_what_the_python_side_calls() -> None:
    compiled, noarch = plan_cuda()
    for variant in (compiled, noarch):
        text = format_ops(
            variant.op_id, compiled=bool(variant.units), per_torch=variant.has_per_torch
        )
        assert "def load_per_torch() -> bool:" in text
        compile(text, "_ops.py", "exec")
    without, _ = plan_cuda(TEXT.replace("per-torch = true\n", "").replace('"csrc/node.cpp", ', ""))
    assert not without.has_per_torch
    assert "per_torch" not in format_ops(without.op_id, compiled=True)


MAIN = Registrations(
    calls=(
        Registration(
            source="b.cpp",
            namespace="_k",
            name="norm",
            schema="norm(Tensor x) -> Tensor",
            defines=True,
        ),
        Registration(source="b.cpp", namespace="_k", name="norm", key="CUDA"),
    )
)


def judge(**call: Any) -> list[tuple[str, str | None]]:
    fields: dict[str, Any] = {"source": "node.cpp", "namespace": "_k", "name": "norm", **call}
    found: list[Finding] = list(
        judge_parts("_k", MAIN, Registrations(calls=(Registration(**fields),)))
    )
    return [(each.rule, each.symbol) for each in found]


def test_code_for_another_key_of_an_op_is_what_they_are_for() -> None:
    assert judge(key="AutogradCUDA") == []


def test_they_define_no_op_of_their_own() -> None:
    assert judge(name="more", schema="more(Tensor x) -> Tensor", defines=True) == [
        ("per-torch-op", "more")
    ]


def test_they_give_no_code_to_an_op_that_is_not_there() -> None:
    assert judge(name="nrom", key="AutogradCUDA") == [("per-torch-op", "nrom")]


def test_they_do_not_take_the_place_of_code_that_is_there() -> None:
    assert judge(key="CUDA") == [("per-torch-op", "norm")]


def test_they_give_code_once() -> None:
    """In two files, or in one: torch takes the last one that it comes to, and warns."""
    call = Registration(source="node.cpp", namespace="_k", name="norm", key="AutogradCUDA")
    for second in (call, replace(call, source="other.cpp")):
        found = list(judge_parts("_k", MAIN, Registrations(calls=(call, second))))
        assert {each.rule for each in found} == {"per-torch-op"}
        assert "2 times" in found[0].message
    other = replace(call, key="AutogradCPU")
    assert not list(judge_parts("_k", MAIN, Registrations(calls=(call, other))))


@pytest.mark.parametrize(
    ("text", "depends"),
    [("#pragma once\n", False), ("  # if TORCH_VERSION_MINOR > 11\n", True), ("#ifdef X\n", True)],
)
def test_only_conditions_make_sources_say_other_things_of_each_torch(
    tmp_path: Path, text: str, depends: bool
) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc" / "node.cpp").write_text(f"// an #if\n{text}int x;\n")
    assert has_conditions(tmp_path) is depends


def test_another_namespace_is_refused() -> None:
    assert judge(namespace="aten", key="AutogradCUDA")[0] == ("op-namespace", "aten::norm")


@pytest.mark.parametrize(
    ("name", "is_stray"),
    [
        ("_k.torch213.so", False),
        ("_k.torch29.so", True),  # torch 2.9 does not load a variant for the stable ABI of 2.10
        ("_other.torch213.so", True),
        ("_k.torch213.so.1", True),
    ],
)
def test_a_variant_has_its_own_libraries_and_no_others(
    tmp_path: Path, name: str, is_stray: bool
) -> None:
    root = tmp_path / "torch-stable-abi210-cpu-x86_64-linux"
    root.mkdir()
    (root / name).write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\x00")
    subject = Subject(
        directory=root,
        variant=parse_variant(root.name),
        metadata=Metadata(name="k", id="_k", version=1, license="MIT", backend=BackendKind.CPU),
    )
    strays = [each.file for each in check_layout(subject) if each.rule == "stray-file"]
    assert strays == ([name] if is_stray else [])
