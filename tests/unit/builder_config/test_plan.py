"""Which variants a plan has, what they are made of, and what their op ids depend on."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_builder.config.model import Build
from kernel_builder.config.read import parse_build
from kernel_builder.errors import ConfigError, SelectionError
from kernel_builder.op_id import make_op_id
from kernel_builder.plan import current_op_id, plan
from kernel_builder.planned import Host, Plan, Selection, VariantBuild
from kernel_builder.sources import SourceFile, SourceSet, listed_paths
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

CPU, CUDA, ROCM = BackendKind.CPU, BackendKind.CUDA, BackendKind.ROCM
TORCH = TorchBuild("2.13.0+cpu", MajorMinor(2, 13))
HOST = Host(cpu="x86_64", os="linux", torch=TORCH, missing={CUDA: "needs nvcc 13.0"})
GPU_HOST = Host(cpu="x86_64", os="linux", torch=TORCH, toolkits={CUDA: MajorMinor(13, 0)})

TEXT = """
[general]
name = "my-op"
version = 2
edition = 5
license = "MIT"
backends = ["cuda", "cpu", "rocm"]
python-depends = ["einops"]

[general.cuda]
python-depends = ["nvidia-cutlass-dsl"]

[torch]
src = ["torch-ext/binding.cpp", "torch-ext/binding.h"]
cxx-flags = ["-Wall"]

[kernel.op_cuda]
backend = "cuda"
depends = ["torch", "cutlass_3_8"]
src = ["csrc/op.cu", "csrc/shared.h"]
cuda-capabilities = ["10.0", "9.0a", "8.0"]
cuda-flags = ["-lineinfo"]

[kernel.op_cpu]
backend = "cpu"
depends = ["torch"]
src = ["csrc/op.cpp", "csrc/shared.h"]
include = ["csrc"]
cxx-flags = ["-O2"]
"""


def build_of(text: str = TEXT) -> Build:
    return parse_build(text.encode())


def sources_of(
    build: Build, *full: str, changed: str = "", extra: tuple[str, ...] = ()
) -> SourceSet:
    """Make the files of a project; those in ``full`` include a header of the full ABI."""

    def file(path: str) -> SourceFile:
        return SourceFile(
            path=path,
            sha256=f"{'other' if path == changed else 'bytes'} of {path}",
            full_abi_header="torch/all.h" if path in full else None,
        )

    extension = ("torch-ext/binding.cpp", "torch-ext/my_op/__init__.py", *extra)
    return SourceSet(
        listed=tuple(file(path) for path in listed_paths(build)),
        extension=tuple(file(path) for path in sorted(extension)),
    )


def made(build: Build | None = None, host: Host = HOST, *full: str, **options: object) -> Plan:
    build = build or build_of()
    return plan(build, sources_of(build, *full), host=host, **options)  # type: ignore[arg-type]


def variant(result: Plan, backend: BackendKind) -> VariantBuild:
    [one] = [each for each in result.variants if each.backend is backend]
    return one


def names(result: Plan) -> list[str]:
    return [str(each.variant) for each in result.variants]


def test_every_backend_is_planned_or_says_what_it_lacks() -> None:
    result = made()
    assert names(result) == ["torch-rocm", "torch-stable-abi210-cpu-x86_64-linux"]
    assert [str(each) for each in result.skipped] == ["cuda: not built here: needs nvcc 13.0"]


def test_an_arch_of_two_components_is_named_once() -> None:
    more = '[kernel.more]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["csrc/more.cu"]\n'
    build = build_of(f'{TEXT}{more}cuda-capabilities = ["9.0a", "12.0"]\n')
    assert variant(made(build, GPU_HOST), CUDA).archs == ("8.0", "9.0a", "10.0", "12.0")


def test_variants_of_python_alone_name_the_devices_that_they_are_for() -> None:
    general = TEXT.partition("[torch]")[0]
    listed = 'cuda-capabilities = ["9.0"]\nrocm-archs = ["gfx942", "gfx90a"]\n'
    result = made(build_of(f"{general}[torch-noarch]\n{listed}"))
    assert {each.backend: each.archs for each in result.variants} == {
        CUDA: ("9.0",),
        ROCM: ("gfx90a", "gfx942"),
        CPU: (),
    }


def test_a_cpu_variant_has_the_binding_and_the_components_of_the_cpu() -> None:
    cpu = variant(made(), CPU)
    assert [(unit.source, unit.component) for unit in cpu.units] == [
        ("torch-ext/binding.cpp", None),
        ("csrc/op.cpp", "op_cpu"),
    ]
    assert cpu.headers == ("csrc/shared.h", "torch-ext/binding.h")
    assert cpu.units[0].cxx_flags == ("-Wall",)
    assert cpu.units[1].cxx_flags == ("-Wall", "-O2")
    assert cpu.units[1].include == ("csrc",)
    assert (cpu.stable_abi, cpu.torch, cpu.archs) == (MajorMinor(2, 10), TORCH, ())
    assert cpu.python_depends == ("einops",)
    assert cpu.package == ("__init__.py",)
    assert (cpu.module, cpu.version, cpu.license) == ("my_op", 2, "MIT")


def test_a_gpu_variant_carries_the_components_of_the_cpu() -> None:
    cuda = variant(made(None, GPU_HOST), CUDA)
    assert str(cuda.variant) == "torch-stable-abi210-cu130-x86_64-linux"
    assert [(unit.source, unit.backend) for unit in cuda.units] == [
        ("torch-ext/binding.cpp", CPU),
        ("csrc/op.cu", CUDA),
        ("csrc/op.cpp", CPU),
    ]
    assert cuda.archs == ("8.0", "9.0a", "10.0")
    assert cuda.depends == ("cutlass_3_8", "torch")
    assert cuda.python_depends == ("einops", "nvidia-cutlass-dsl")
    assert cuda.units[1].backend_flags == ("-lineinfo",)


def test_a_backend_without_a_component_gets_a_variant_without_machine_code() -> None:
    rocm = variant(made(), ROCM)
    assert (str(rocm.variant), rocm.units, rocm.torch) == ("torch-rocm", (), None)


@pytest.mark.parametrize("path", ["csrc/op.cpp", "csrc/shared.h", "torch-ext/binding.h"])
def test_one_full_header_makes_a_variant_for_this_torch_alone(path: str) -> None:
    result = made(None, HOST, path)
    cpu = variant(result, CPU)
    assert str(cpu.variant) == "torch213-cxx11-cpu-x86_64-linux"
    assert cpu.stable_abi is None
    assert any(path in note and "torch/all.h" in note for note in result.notes)


def test_a_full_header_of_another_backend_does_not_matter() -> None:
    assert variant(made(None, HOST, "csrc/op.cu"), CPU).stable_abi == MajorMinor(2, 10)


def test_what_build_toml_says_of_the_abi_stands() -> None:
    build = build_of(TEXT.replace('cxx-flags = ["-Wall"]', 'stable-abi = "2.11"'))
    result = made(build, HOST, "csrc/op.cpp")
    assert str(variant(result, CPU).variant) == "torch-stable-abi211-cpu-x86_64-linux"
    assert any("csrc/op.cpp" in note for note in result.notes)


def test_the_lowest_torch_raises_the_default_abi() -> None:
    build = build_of(TEXT.replace('cxx-flags = ["-Wall"]', 'minver = "2.12"'))
    assert variant(made(build), CPU).stable_abi == MajorMinor(2, 12)


@pytest.mark.parametrize(
    ("line", "full", "reason"),
    [
        ('stable-abi = "2.14"', False, "needs torch 2.14 or newer"),
        ('minver = "2.14"', True, "torch.minver"),
        ('maxver = "2.12"', True, "torch.maxver"),
    ],
)
def test_a_torch_that_does_not_fit_is_a_reason(line: str, full: bool, reason: str) -> None:
    build = build_of(TEXT.replace('cxx-flags = ["-Wall"]', line))
    result = made(build, HOST, *(["csrc/op.cpp"] if full else []))
    assert any(each.backend is CPU and reason in each.reason for each in result.skipped)


PINNED = tuple(
    TorchBuild(f"2.{minor}.0", MajorMinor(2, minor), cxx11_abi=True) for minor in (11, 14)
)


def test_each_torch_that_is_asked_for_gives_a_variant_by_its_pinned_headers() -> None:
    host = replace(GPU_HOST, pinned_torches=PINNED)
    # The CUDA variant is of the stable interface, which no release changes.
    full = made(None, host, "csrc/op.cpp", selection=Selection(backends=frozenset({CPU})))
    assert names(full) == [f"torch2{minor}-cxx11-cpu-x86_64-linux" for minor in (11, 14)]
    assert [each.torch for each in full.variants] == list(PINNED)
    assert all(each.is_pinned for each in full.variants)
    assert names(made(None, replace(host, torch=None), "csrc/op.cpp", "csrc/op.cu"))[1:] == [
        f"torch2{minor}-cxx11-{backend}-x86_64-linux"
        for minor in (11, 14)
        for backend in ("cpu", "cu130")
    ]
    assert not any(each.is_pinned for each in made(None, GPU_HOST, "csrc/op.cpp").variants)


def test_a_torch_that_no_variant_is_for_is_refused() -> None:
    host = replace(HOST, pinned_torches=PINNED)
    with pytest.raises(SelectionError, match=r"no variant for torch 2\.11, 2\.14[^$]*stable ABI"):
        made(None, host, selection=Selection(backends=frozenset({CPU})))
    build = build_of(TEXT.replace('cxx-flags = ["-Wall"]', 'minver = "2.12"'))
    with pytest.raises(SelectionError, match=r"no variant for torch 2\.11 here[^$]*torch\.minver"):
        made(build, host, "csrc/op.cpp")


def test_bounds_hold_for_every_patch_release() -> None:
    build = build_of(TEXT.replace('cxx-flags = ["-Wall"]', 'maxver = "2.13"'))
    host = replace(HOST, torch=TorchBuild("2.13.7", MajorMinor(2, 13)))
    assert "torch213-cxx11-cpu-x86_64-linux" in names(made(build, host, "csrc/op.cpp"))


def test_a_highest_torch_holds_no_later_one_back_from_the_stable_abi() -> None:
    build = build_of(TEXT.replace('cxx-flags = ["-Wall"]', 'maxver = "2.12"'))
    result = made(build)
    stable = [each for each in result.variants if each.stable_abi is not None]
    assert stable
    for each in stable:
        assert f'{each.variant}: maxver = "2.12" chooses what is built' in "\n".join(result.notes)
    full = made(
        build_of(TEXT.replace('cxx-flags = ["-Wall"]', 'maxver = "2.13"')), HOST, "csrc/op.cpp"
    )
    assert not [note for note in full.notes if "cxx11" in note and "maxver" in note]


def test_without_torch_only_what_needs_no_compiler_is_planned() -> None:
    result = made(None, replace(HOST, torch=None))
    assert names(result) == ["torch-rocm"]
    assert {each.backend for each in result.skipped} == {CPU, CUDA}


def test_a_nightly_torch_has_no_name_for_its_full_interface() -> None:
    nightly = TorchBuild("2.14.0.dev20260101", MajorMinor(2, 14), prerelease=True)
    result = made(None, replace(HOST, torch=nightly), "csrc/op.cpp")
    assert any("released torch" in each.reason for each in result.skipped)


def test_a_source_in_two_components_is_compiled_once_with_the_flags_of_both() -> None:
    twice = (
        TEXT
        + '[kernel.more]\nbackend = "cpu"\ndepends = []\nsrc = ["csrc/op.cpp"]\ncxx-flags = ["-g"]\n'
    )
    cpu = variant(made(build_of(twice)), CPU)
    [unit] = [unit for unit in cpu.units if unit.source == "csrc/op.cpp"]
    assert unit.cxx_flags == ("-Wall", "-O2", "-g")


def test_files_that_stay_behind_are_named() -> None:
    build = build_of()
    sources = sources_of(build, extra=("torch-ext/my_op/tuned.json", "torch-ext/my_op/a.pyi"))
    result = plan(build, sources, host=HOST)
    assert variant(result, CPU).package == ("__init__.py", "a.pyi")
    assert [note for note in result.notes if "tuned.json" in note and '"json"' in note]
    build = build_of(TEXT.replace('cxx-flags = ["-Wall"]', 'pyext = ["json"]'))
    assert variant(plan(build, sources, host=HOST), CPU).package == ("__init__.py", "tuned.json")


def test_a_licence_that_old_files_lack_is_told() -> None:
    assert not any("missing license" in note for note in made().notes)
    old = TEXT.replace('edition = 5\nlicense = "MIT"\n', "")
    assert "build.toml: missing license" in made(build_of(old)).notes


def test_selections() -> None:
    only = made(selection=Selection(backends=frozenset({CPU})))
    assert names(only) == ["torch-stable-abi210-cpu-x86_64-linux"]
    assert only.skipped == ()
    one = made(selection=Selection(variants=frozenset({"torch-rocm"})))
    assert names(one) == ["torch-rocm"]


def test_a_selection_of_what_is_not_there() -> None:
    with pytest.raises(SelectionError, match=r"no backend xpu.*lists cpu, cuda, rocm") as caught:
        made(selection=Selection(backends=frozenset({BackendKind.XPU})))
    assert caught.value.exit_code == 2
    with pytest.raises(
        SelectionError, match=r"its backend is not built .*\n  cuda: not built here"
    ):
        made(selection=Selection(variants=frozenset({"torch-stable-abi210-cu130-x86_64-linux"})))
    for unknown in ("torch-xpu", "torch-stable-abi29-cpu-x86_64-linux", "nonsense"):
        with pytest.raises(SelectionError, match=r"expected one of torch-rocm, .*\n  cuda: not"):
            made(selection=Selection(variants=frozenset({unknown})))


def test_an_op_id_names_module_backend_and_content() -> None:
    build = build_of()
    before = current_op_id(build, sources_of(build), CPU)
    assert before.startswith("_my_op_cpu_")
    assert len(before) == len("_my_op_cpu_") + 12
    assert before == variant(made(), CPU).op_id


@pytest.mark.parametrize(
    ("old", "new", "moves"),
    [
        ("version = 2", "version = 3", True),
        ('["-O2"]', '["-O3"]', True),
        ('["-lineinfo"]', "[]", False),
        ('"10.0", ', "", False),
        ('backends = ["cuda", "cpu", "rocm"]', 'backends = ["cpu", "cuda"]', False),
        ("[torch]", '[general.hub]\nrepo-id = "a/b"\n[torch]', False),
        ("\n[torch]", "\n# a comment\n[torch]", False),
    ],
)
def test_the_op_id_of_the_cpu_moves_with_what_makes_it(old: str, new: str, moves: bool) -> None:
    assert TEXT.count(old) == 1
    build, other = build_of(), build_of(TEXT.replace(old, new))
    before = current_op_id(build, sources_of(build), CPU)
    after = current_op_id(other, sources_of(other), CPU)
    assert (before != after) is moves


@pytest.mark.parametrize(
    ("path", "moved"),
    [
        ("csrc/op.cpp", {CPU, CUDA}),
        ("csrc/op.cu", {CUDA}),
        ("csrc/shared.h", {CPU, CUDA}),
        ("torch-ext/my_op/__init__.py", {CPU, CUDA, ROCM}),
    ],
)
def test_a_changed_file_moves_the_op_ids_that_use_it(path: str, moved: set[BackendKind]) -> None:
    build = build_of()
    before, after = sources_of(build), sources_of(build, changed=path)
    assert moved == {
        backend
        for backend in (CPU, CUDA, ROCM)
        if current_op_id(build, before, backend) != current_op_id(build, after, backend)
    }


@given(st.randoms(use_true_random=False))
def test_a_plan_follows_from_its_arguments_alone(rng: random.Random) -> None:
    build = build_of()
    sources = sources_of(build)
    backends = list(build.general.backends)
    rng.shuffle(backends)
    missing = list({CUDA: "needs nvcc 13.0", BackendKind.XPU: "needs icpx"}.items())
    rng.shuffle(missing)
    shuffled = replace(build, general=replace(build.general, backends=tuple(backends)))
    result = plan(shuffled, sources, host=replace(HOST, missing=dict(missing)))
    assert result.variants == made().variants
    assert set(result.skipped) == set(made().skipped)


@given(st.text(min_size=1), st.text(min_size=1))
def test_op_ids_of_different_files_differ(one: str, other: str) -> None:
    build = build_of()

    def named(path: str, content: str) -> str:
        file = SourceFile(path=path, sha256=content)
        return make_op_id(build, SourceSet(listed=(), extension=(file,)), ROCM, ())

    assert (named("a", one) == named("a", other)) is (one == other)
    assert (named(one, "x") == named(other, "x")) is (one == other)


def test_the_source_set_of_a_project_on_disk(tmp_path: Path) -> None:
    from kernel_builder.errors import ProjectError
    from kernel_builder.sources import read_sources

    build = build_of()
    for path in (*listed_paths(build), "torch-ext/my_op/__init__.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"// {path}")
    before = read_sources(tmp_path, build)
    for junk in ("_ops.py", "__pycache__/x.pyc", "x.so", ".x.swp"):
        place = tmp_path / "torch-ext/my_op" / junk
        place.parent.mkdir(exist_ok=True)
        place.write_text("made by something")
    (tmp_path / "README.md").write_text("not a source")
    assert read_sources(tmp_path, build) == before
    (tmp_path / "torch-ext/my_op/_ops").mkdir()
    (tmp_path / "torch-ext/my_op/_ops/_ops.py").write_text("written by hand")
    assert read_sources(tmp_path, build) != before

    (tmp_path / "csrc/op.cpp").unlink()
    (tmp_path / "csrc/op.cu").unlink()
    with pytest.raises(ProjectError, match=r"(?s)op\.cpp.*op\.cu"):
        read_sources(tmp_path, build)


def test_what_is_no_file_of_the_project_is_refused_by_name(tmp_path: Path) -> None:
    from kernel_builder.errors import ProjectError
    from kernel_builder.sources import read_sources

    project = tmp_path / "project"
    build = build_of()
    for path in (*listed_paths(build), "torch-ext/my_op/__init__.py"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text("")
    module = project / "torch-ext/my_op"
    (tmp_path / "secret.py").write_text("")
    (module / "outside.py").symlink_to(tmp_path / "secret.py")
    (module / "nothing.py").symlink_to("nowhere")
    (module / "directory").symlink_to("../../csrc")
    os.mkfifo(module / "pipe.py")
    (module / "inside.py").symlink_to("__init__.py")
    with pytest.raises(ProjectError) as caught:
        read_sources(project, build)
    assert [line.removeprefix(f"{module}/") for line in str(caught.value).splitlines()] == [
        "directory: a link to a directory; copy the directory",
        "nothing.py: a link to nothing; copy the file into the project",
        "outside.py: a link out of the project; copy the file into it",
        "pipe.py: neither a file nor a directory; remove it",
    ]


def test_the_headers_of_the_full_interface() -> None:
    from kernel_builder.sources import find_full_abi_header

    assert find_full_abi_header(b"#include <vector>\n  #  include <ATen/ATen.h>\n") == "ATen/ATen.h"
    assert find_full_abi_header(b'#include "torch/library.h"') == "torch/library.h"
    assert find_full_abi_header(b"#include <torch/csrc/stable/library.h>\n") is None
    assert find_full_abi_header(b"#include <torch/headeronly/util/Exception.h>\n") is None
    assert find_full_abi_header(b"// #include <ATen/ATen.h>\n") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/*\n#include <ATen/ATen.h>\n*/\n", None),
        ("#if 0\n#include <ATen/ATen.h>\n#endif\n", None),
        ("#if 0 // not now\n# ifdef A\n#include <ATen/ATen.h>\n# else\n# endif\n#endif\n", None),
        ("#if 0\n#else\n#include <ATen/ATen.h>\n#endif\n", "ATen/ATen.h"),
        ("#if 0 || A\n#include <ATen/ATen.h>\n#endif\n", "ATen/ATen.h"),
        ("#if 0\n#endif\n#include <ATen/ATen.h>\n", "ATen/ATen.h"),
        ("#ifdef A\n#include <ATen/ATen.h>\n#endif\n", "ATen/ATen.h"),
        ('auto a = "/*";\n#include <ATen/ATen.h>\nauto b = \'"\';\n', "ATen/ATen.h"),
        ("// /*\n#include <ATen/ATen.h>\n", "ATen/ATen.h"),
        ("// a \\\n/* b\n#include <ATen/ATen.h>\n/* c */\n", "ATen/ATen.h"),
        ("#if 0\n#elifndef A\n#include <ATen/ATen.h>\n#endif\n", "ATen/ATen.h"),
    ],
)
def test_a_header_that_no_compiler_sees_does_not_count(text: str, found: str | None) -> None:
    from kernel_builder.sources import find_full_abi_header

    assert find_full_abi_header(text.encode()) == found


def test_a_backend_gets_python_alone_beside_its_compiled_variant_where_the_file_says_so() -> None:
    also = build_of(TEXT.replace("[torch]\n", '[torch]\nnoarch = ["cuda"]\n'))
    found = made(also, GPU_HOST)
    pure, compiled = (each for each in found.variants if each.backend is CUDA)
    assert [str(pure.variant), str(compiled.variant)] == [
        "torch-cuda",
        "torch-stable-abi210-cu130-x86_64-linux",
    ]
    assert not pure.units
    assert pure.package == compiled.package
    assert any(note.startswith("torch.noarch of build.toml is read by") for note in found.notes)
    # Without a toolkit it is what is left of the backend, and the reason is told as ever.
    bare = made(also)
    assert "torch-cuda" in names(bare)
    assert [each.reason for each in bare.skipped] == ["needs nvcc 13.0"]
    # The ops are the same, whatever else is built of them.
    assert compiled.op_id == variant(made(None, GPU_HOST), CUDA).op_id


def test_only_a_listed_backend_can_have_python_alone_as_well() -> None:
    with pytest.raises(ConfigError, match=r'"xpu" is not in general.backends'):
        build_of(TEXT.replace("[torch]\n", '[torch]\nnoarch = ["xpu"]\n'))
