"""Per-torch libraries, really built against pinned headers and loaded. Budget: 240 s with an empty cache."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from listings import get_listing

from kernel_builder.cli.lint_abi import lint_abi
from kernel_builder.cli.plan import plan
from kernel_builder.errors import CheckError
from kernel_builder.locking import lock_project
from kernel_builder.pipeline import build_project
from kernel_builder.report import VariantReport
from kernel_builder.settings import Settings

Kit = Callable[[str], Path]
TORCH_HERE = ".torch213.so"
# Two pinned releases, that of the installed torch and the next, are enough to see what five would show.
BOUND = 'stable-abi = "2.10"\nminver = "2.13"'
USE = """
import json, sys, torch, kernels
kernel = kernels.get_local_kernel(sys.argv[1])
x = torch.randn(5, requires_grad=True)
y = kernel.scale(x, 3.0)
gradient = torch.autograd.grad(y.sum(), x)[0].tolist()
print(json.dumps([kernel.has_node, torch.equal(y, x * 3), gradient]))
"""


def bound(project: Path, text: str = BOUND) -> Path:
    place = project / "build.toml"
    place.write_text(place.read_text().replace('stable-abi = "2.10"', text))
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
    command = [sys.executable, "-c", USE, str(project)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    found: list[object] = json.loads(finished.stdout)
    return found


def libraries(variant: Path) -> dict[str, bytes]:
    """Return its per-torch libraries, by what their names end in."""
    found = sorted(variant.glob("*.torch*.so"))
    return {path.name[path.name.index(".") :]: path.read_bytes() for path in found}


def test_the_page_shows_this_kit(kit: Kit) -> None:
    project = kit("scale_node")
    described = get_listing("docs/guide/build-toml.md", '[torch]\nsrc = ["torch-ext/')
    assert described in (project / "build.toml").read_text()
    loading = get_listing("docs/guide/build-toml.md", "from ._ops import load_per_torch")
    assert loading in (project / "torch-ext/scale_node/__init__.py").read_text()


def test_a_node_in_cpp_is_there_for_the_torch_that_runs(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"))
    variant = build_well(project, settings)
    assert list(libraries(variant)) == [TORCH_HERE, ".torch214.so"]
    assert use(project) == [True, True, [3.0] * 5]


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
    project = bound(kit("scale_node"), 'stable-abi = "2.10"\nminver = "2.13"\nmaxver = "2.13"')
    build_well(project, settings)
    place = project / "csrc" / "scale.cpp"
    place.write_text(place.read_text().replace("++at", "at += 1"))
    build_well(project, settings)  # the first change makes the object that later ids are put in
    place.write_text(place.read_text().replace("at += 1", "at = at + 1"))
    report = build(project, settings)
    assert [each.source for each in report.files if not each.reused] == ["csrc/scale.cpp"]
    assert report.path is not None
    assert use(project) == [True, True, [3.0] * 5]
    found = libraries(report.path)
    shutil.copytree(settings.cache / "toolchains", tmp_path / "cache" / "toolchains")
    fresh = replace(settings, cache=tmp_path / "cache")
    assert found == libraries(build_well(project, fresh))


def test_it_gives_code_to_ops_and_defines_none(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"), 'stable-abi = "2.10"\nminver = "2.13"\nmaxver = "2.13"')
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


def test_the_lock_names_each_torch(kit: Kit, settings: Settings) -> None:
    project = bound(kit("scale_node"))
    lock_project(project, settings)
    inputs = json.loads((project / "kernel-builder.lock").read_text())["inputs"]
    found = {name: each for name, each in inputs.items() if name.startswith("torch-")}
    assert set(found) == {"torch-2.13-x86_64", "torch-2.14-x86_64"}
    assert all(len(each["sha256"]) == 64 for each in found.values())


def test_the_plan_and_the_linter_know_them(kit: Kit) -> None:
    project = bound(kit("scale_node"))
    planned = CliRunner().invoke(plan, [str(project)])
    assert planned.exit_code == 0, planned.output
    said = "2 to compile, torch stable ABI 2.10, and 1 for each of torch 2.13, torch 2.14"
    assert said in planned.output
    linted = CliRunner().invoke(lint_abi, [str(project)])
    assert linted.exit_code == 0, linted.output
