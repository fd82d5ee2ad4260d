"""Per-torch libraries, really built against pinned headers and loaded. Budget: 300 s with an empty cache."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from listings import get_listing

from kernel_builder.check.variant import check_variant
from kernel_builder.cli.check_abi import check_abi
from kernel_builder.cli.lint_abi import lint_abi
from kernel_builder.cli.plan import plan
from kernel_builder.errors import CheckError, ImportCheckError
from kernel_builder.from_source import build_fitting
from kernel_builder.locking import lock_project
from kernel_builder.own_headers import read_own_headers
from kernel_builder.pipeline import build_project
from kernel_builder.report import VariantReport, format_report
from kernel_builder.settings import Settings
from kernels.system import detect

Kit = Callable[[str], Path]
TORCH_HERE = ".torch213.so"
# Two pinned releases, that of the installed torch and the next, are enough to see what five would show.
ONE = 'stable-abi = "2.10"\nminver = "2.13"\nmaxver = "2.13"'
BOUND = 'stable-abi = "2.10"\nminver = "2.13"'
USE = """
import json, sys, torch, kernels
kernel = kernels.get_local_kernel(sys.argv[1])
x = torch.randn(5, requires_grad=True)
y = kernel.scale(x, 3.0)
dy = torch.ones(5, requires_grad=True)
(dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
assert torch.autograd.grad(dx.sum(), dy)[0].tolist() == [3.0] * 5
gradient = dx.tolist()
compiled = torch.compile(kernel.scale, fullgraph=True, backend="aot_eager")
z = compiled(x, 3.0)
assert torch.equal(z, x * 3)
assert torch.autograd.grad(z.sum(), x)[0].tolist() == [3.0] * 5
assert torch.equal(compiled(x.detach(), 3.0), x.detach() * 3)
for dtype in (torch.float16, torch.float64):
    wrong = torch.ones(1000, dtype=dtype)
    for call, error, said in (
        (kernel.scale, ValueError, f"x must be torch.float32 on the CPU, not {dtype} on cpu"),
        (kernel._ops.ops.scale, RuntimeError, "scale: x must be float32"),
    ):
        try:
            call(wrong, 2.0)
        except error as err:
            assert said in str(err), err
        else:
            raise SystemExit(f"{dtype} was taken")
print(json.dumps([kernel.has_node, torch.equal(y, x * 3), gradient]))
"""


USE_NODE = """
import sys, torch, kernels
from torch.autograd import forward_ad
scale = kernels.get_local_kernel(sys.argv[1]).scale
x = torch.randn(5, requires_grad=True)
y = scale(x, 3.0)
assert y.grad_fn.name() == "ScaleBackward"
many = torch.autograd.grad(y, x, torch.eye(5), is_grads_batched=True)[0]
assert torch.equal(many, 3 * torch.eye(5)), many
y = scale(x, 3.0)
with forward_ad.dual_level():
    dy = forward_ad.make_dual(torch.ones(5), torch.full((5,), 2.0))
    tangent = forward_ad.unpack_dual(torch.autograd.grad(y, x, dy)[0]).tangent
    assert tangent.tolist() == [6.0] * 5, tangent
    try:
        scale(forward_ad.make_dual(x, x), 3.0)
        raise SystemExit("a tangent was dropped")
    except NotImplementedError as err:
        assert "forward-mode" in str(err)
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    for factor in (3.0, 4.0):
        (dx,) = torch.autograd.grad(scale(x * 1, factor).sum(), x)
        assert dx.tolist() == [factor] * 5, dx
y = x
for _ in range(50_000):
    y = scale(y, 1.0)
del y
print("as it is said")
"""


def bound(project: Path, text: str = BOUND) -> Path:
    place = project / "build.toml"
    place.write_text(place.read_text().replace('stable-abi = "2.10"', text))
    return project


def write_out(project: Path) -> Path:
    """Put the guide's node in the place of the kit's."""
    listing = get_listing("docs/guide/per-torch.md", "// In the place of csrc/scale_node.cpp")
    (project / "csrc" / "scale_node.cpp").write_text(listing)
    return project


def build(project: Path, settings: Settings) -> VariantReport:
    (report,) = build_project(project, settings=settings, jobs=2).variants
    return report


def build_well(project: Path, settings: Settings) -> Path:
    report = build(project, settings)
    assert report.error is None, report.error
    assert report.path is not None
    return report.path


def use(project: Path) -> list[object]:
    found: list[object] = json.loads(run_script(USE, project))
    return found


def run_script(script: str, project: Path) -> str:
    command = [sys.executable, "-c", script, str(project)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def libraries(variant: Path) -> dict[str, bytes]:
    """Return its per-torch libraries, by what their names end in."""
    found = sorted(variant.glob("*.torch*.so"))
    return {path.name[path.name.index(".") :]: path.read_bytes() for path in found}


def test_the_page_shows_this_kit(kit: Kit) -> None:
    """Whoever types it off has what the tests here build."""
    project = kit("scale_node")
    described = get_listing("docs/guide/per-torch.md", "[general]")
    shown = [
        get_listing("docs/guide/per-torch.md", "// torch-ext/torch_binding.cpp"),
        get_listing("docs/guide/per-torch.md", "// csrc/scale.h"),
        get_listing("docs/guide/per-torch.md", "// csrc/scale.cpp"),
        get_listing("docs/guide/per-torch.md", "// csrc/scale_node.cpp"),
        get_listing("docs/guide/per-torch.md", "# torch-ext/scale_node/"),
    ]
    files = {"build.toml": described}
    for text in shown:
        head, _, rest = text.partition("\n")
        files[head.split()[-1]] = rest
    here = [path for path in project.rglob("*") if path.is_file()]
    assert files == {path.relative_to(project).as_posix(): path.read_text() for path in here}
    assert get_listing("docs/guide/build-toml.md", "[kernel.scale_node]") in described


def test_a_node_in_cpp_is_there_for_the_torch_that_runs(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"))
    variant = build_well(project, settings)
    assert list(libraries(variant)) == [TORCH_HERE, ".torch214.so"]
    assert use(project) == [True, True, [3.0] * 5]


def test_a_node_that_is_written_out_is_one_source_for_every_torch(
    kit: Kit, settings: Settings
) -> None:
    """Before and since torch 2.13, which changed who owns a node, and 2.14, which has hooks for them."""
    project = write_out(bound(kit("scale_node"), 'stable-abi = "2.10"\nminver = "2.12"'))
    variant = build_well(project, settings)
    assert list(libraries(variant)) == [".torch212.so", TORCH_HERE, ".torch214.so"]
    assert use(project) == [True, True, [3.0] * 5]
    assert run_script(USE_NODE, project) == "as it is said\n"


def test_another_header_of_the_builder_compiles_what_reads_it_again(
    kit: Kit, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write_out(bound(kit("scale_node"), ONE))
    build_well(project, settings)
    given = read_own_headers()
    given["autograd_node.h"] += b"// of another builder\n"
    monkeypatch.setattr("kernel_builder.compile.read_own_headers", lambda: given)
    # What is up to date is so for the files that the builder has, whose headers lie among them.
    (report,) = build_project(project, settings=settings, jobs=2, force=True).variants
    assert report.error is None, report.error
    again = [each.source for each in report.files if not each.reused]
    assert again == ["csrc/scale_node.cpp (torch 2.13)"]


def test_without_one_for_this_torch_the_kernel_works_all_the_same(
    kit: Kit, settings: Settings
) -> None:
    project = bound(kit("scale_node"), 'stable-abi = "2.10"\nminver = "2.14"\nmaxver = "2.14"')
    variant = build_well(project, settings)
    assert list(libraries(variant)) == [".torch214.so"]
    assert use(project) == [False, True, [3.0] * 5]


def test_the_bytes_do_not_depend_on_place_or_cache(
    kit: Kit, settings: Settings, tmp_path: Path
) -> None:
    first = bound(kit("scale_node"))
    second = Path(shutil.copytree(first, tmp_path / "elsewhere" / "other-name"))
    shutil.copytree(settings.cache / "toolchains", tmp_path / "cache" / "toolchains")
    fresh = replace(settings, cache=tmp_path / "cache")
    assert libraries(build_well(first, settings)) == libraries(build_well(second, fresh))


def test_an_edit_of_the_main_library_compiles_no_node_again(
    kit: Kit, settings: Settings, tmp_path: Path
) -> None:
    project = bound(kit("scale_node"), ONE)
    build_well(project, settings)
    place = project / "csrc" / "scale.cpp"
    place.write_text(place.read_text().replace("++at", "at += 1"))
    build_well(project, settings)  # the first change makes the object that later ids are put in
    place.write_text(place.read_text().replace("at += 1", "at = at + 1"))
    report = build(project, settings)
    assert [each.source for each in report.files if not each.reused] == ["csrc/scale.cpp"]
    assert report.files[-1].source == "csrc/scale_node.cpp (torch 2.13)"
    assert report.path is not None
    assert use(project) == [True, True, [3.0] * 5]
    found = libraries(report.path)
    shutil.copytree(settings.cache / "toolchains", tmp_path / "cache" / "toolchains")
    fresh = replace(settings, cache=tmp_path / "cache")
    assert found == libraries(build_well(project, fresh))


def test_it_gives_code_to_ops_and_defines_none(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"), ONE)
    place = project / "csrc" / "scale_node.cpp"
    text = place.read_text()
    place.write_text(
        f"{text}\nTORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, more) {{\n"
        '  more.def("twice(Tensor x) -> Tensor");\n}\n'
    )
    error = build(project, settings).error
    assert isinstance(error, CheckError), error
    assert {(each.rule, each.symbol) for each in error.findings} == {("per-torch-op", "twice")}


def test_what_its_torch_does_not_define_is_found(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"), 'stable-abi = "2.10"\nminver = "2.14"\nmaxver = "2.14"')
    place = project / "csrc" / "scale_node.cpp"
    text = place.read_text().replace(
        "namespace {", "namespace c10 { void not_there(); }\nnamespace {", 1
    )
    place.write_text(text.replace("return Scale::apply", "c10::not_there(); return Scale::apply"))
    error = build(project, settings).error
    assert isinstance(error, CheckError), error
    ((file, rule, symbol),) = {(each.file, each.rule, each.symbol) for each in error.findings}
    assert file.endswith(".torch214.so")
    assert (rule, symbol) == ("undefined-symbol", "c10::not_there()")


def test_the_users_index_is_asked_before_anything_is_compiled(
    kit: Kit, settings: Settings, tmp_path: Path
) -> None:
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    fresh = replace(settings, cache=tmp_path / "cache", pip_variables=nowhere)
    report = build_project(bound(kit("scale_node")), settings=fresh, jobs=2)
    said = format_report(report)
    assert report.exit_code == 1, said
    assert "torch 2.13.0 cannot be fetched with pip" in said
    assert "PIP_INDEX_URL" in said
    assert not (fresh.cache / "objects").exists()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "#include <cstdlib>\nstatic int ends = [] { std::_Exit(0); return 1; }();\n",
            "with exit code 0",
        ),
        (
            "#include <cstdlib>\nstatic int dies = [] { std::abort(); return 1; }();\n",
            "by signal 6",
        ),
        (
            "#include <torch/library.h>\nstatic auto own = torch::RegisterOperators().op("
            '"mine::op(Tensor x) -> Tensor", [](at::Tensor x) { return x; });\n',
            "registers mine::op",
        ),
    ],
)
def test_what_one_does_as_it_is_loaded_is_seen(
    kit: Kit, settings: Settings, code: str, said: str
) -> None:
    project = bound(kit("scale_node"), ONE)
    (project / "csrc" / "scale_node.cpp").write_text(code)
    error = build(project, settings).error
    assert isinstance(error, ImportCheckError), error
    assert f"{TORCH_HERE}\n" in str(error)
    assert said in str(error)


def test_python_beyond_its_stable_abi_is_found(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"), ONE)
    (project / "csrc" / "scale_node.cpp").write_text(
        'extern "C" const char* PyUnicode_AsUTF8(void*);\n'
        "static const char* text = PyUnicode_AsUTF8(nullptr);\n"
    )
    error = build(project, settings).error
    assert isinstance(error, CheckError), error
    assert {(each.rule, each.symbol) for each in error.findings} == {
        ("python-abi", "PyUnicode_AsUTF8")
    }


def test_a_check_elsewhere_finds_nothing_wrong(
    kit: Kit, settings: Settings, tmp_path: Path
) -> None:
    """Without torch's headers and names, or with rules of one's own: as where it was built."""
    project = bound(kit("scale_node"), 'stable-abi = "2.10"\nminver = "2.14"\nmaxver = "2.14"')
    variant = build_well(project, settings)
    bare = replace(settings, cache=tmp_path / "bare")
    assert check_variant(variant, settings=settings) == ()
    assert check_variant(variant, settings=bare) == ()
    checked = CliRunner().invoke(check_abi, [str(project)])
    assert checked.exit_code == 0, checked.output
    assert "2 libraries need no more than" in checked.output
    assert "1 of them, for one torch each, need" in checked.output


def test_the_lock_names_each_torch(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"))
    lock_project(project, settings)
    inputs = json.loads((project / "kernel-builder.lock").read_text())["inputs"]
    found = {name: each for name, each in inputs.items() if name.startswith("torch-")}
    assert set(found) == {"torch-2.13-x86_64", "torch-2.14-x86_64"}
    assert all(len(each["sha256"]) == 64 for each in found.values())


def test_the_linter_binds_what_the_main_library_reads_too(kit: Kit) -> None:
    project = kit("scale_node")
    (project / "csrc" / "both.h").write_text("#include <torch/library.h>\n")
    place = project / "build.toml"
    place.write_text(place.read_text().replace('.cpp"]\n', '.cpp", "csrc/both.h"]\n'))
    linted = CliRunner().invoke(lint_abi, [str(project)])
    assert linted.exit_code == 1
    assert linted.output.startswith("csrc/both.h:1: torch/library.h: ")


def test_the_plan_and_the_linter_know_them(kit: Kit) -> None:
    project = bound(kit("scale_node"))
    planned = CliRunner().invoke(plan, [str(project)])
    assert planned.exit_code == 0, planned.output
    said = "2 to compile, torch stable ABI 2.10, and 1 for each of torch 2.13, torch 2.14"
    assert said in planned.output
    linted = CliRunner().invoke(lint_abi, [str(project)])
    assert linted.exit_code == 0, linted.output


def test_a_build_from_sources_makes_the_one_for_the_torch_here_or_does_without(
    kit: Kit, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = kit("scale_node")
    monkeypatch.setenv("XDG_CACHE_HOME", str(settings.cache.parent))
    assert list(libraries(build_fitting(project, detect()))) == [TORCH_HERE]
    assert use(project) == [True, True, [3.0] * 5]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    shutil.rmtree(project / "build")
    assert list(libraries(build_fitting(project, detect()))) == []
    assert use(project) == [False, True, [3.0] * 5]
