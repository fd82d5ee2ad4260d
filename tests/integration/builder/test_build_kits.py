"""Whole builds of tiny projects: what lies in build/, and that it computes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.variant import check_variant
from kernel_builder.pipeline import build_project
from kernel_builder.report import Outcome, Report, format_report
from kernel_builder.settings import Settings

Kit = Callable[[str], Path]

# Imports a variant as the published client does: the package's name is the id.
_USE = """
import importlib.util, json, sys, torch
directory = sys.argv[1]
name = json.load(open(directory + "/metadata.json"))["id"]
spec = importlib.util.spec_from_file_location(
    name, directory + "/__init__.py", submodule_search_locations=[directory])
kernel = importlib.util.module_from_spec(spec)
sys.modules[name] = kernel
spec.loader.exec_module(kernel)
"""


def use(directory: Path, code: str) -> str:
    command = [sys.executable, "-I", "-B", "-c", _USE + code, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def built(report: Report) -> Path:
    (only,) = report.variants
    assert only.error is None, format_report(report)
    assert only.path is not None
    return only.path


def test_a_stable_variant_is_whole_and_computes(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    report = build_project(project, settings=settings)
    directory = built(report)
    assert report.exit_code == 0
    assert directory.name == "torch-stable-abi210-cpu-x86_64-linux"
    assert [path.name for path in (project / "build").iterdir()] == [directory.name]
    metadata = json.loads((directory / "metadata.json").read_text())
    op_id = metadata["id"]
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        ["__init__.py", "_ops.py", f"{op_id}.abi3.so", "metadata.json"]
    )
    assert metadata["kernels-minver"] == "0.14.0"
    assert check_variant(directory, settings=settings) == ()
    code = "print(kernel.add_one(torch.arange(4.0)).tolist(), kernel._ops.add_op_namespace_prefix('f'))"
    assert use(directory, code) == f"[1.0, 2.0, 3.0, 4.0] {op_id}::f"
    assert "rocm: not built here" in format_report(report)


def test_nothing_of_the_machine_is_in_the_library(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    directory = built(build_project(project, settings=settings))
    (library,) = directory.glob("*.so")
    data = library.read_bytes()
    for place in (str(settings.cache), str(project), sys.prefix, str(Path.home())):
        assert place.encode() not in data
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o644}


def test_exceptions_and_type_information_cross_the_border(kit: Kit, settings: Settings) -> None:
    """The library exports PyInit_* alone, and still catches what torch throws and vice versa."""
    directory = built(build_project(kit("throw_full"), settings=settings))
    assert directory.name.startswith("torch2")
    code = """
two, three = torch.ones(2, 3), torch.ones(3, 2)
print(kernel.describe_mismatch(two, two))
try:
    kernel.describe_mismatch(two, three)
except IndexError as err:
    print(err)
"""
    assert use(directory, code) == "caught c10::Error\nthe product exists"
    (library,) = directory.glob("*.so")
    from kernel_spec.binary import read_elf

    defined = [symbol.name for symbol in read_elf(library).symbols if symbol.defined]
    assert defined == [f"PyInit_{library.name.removesuffix('.abi3.so')}"]


def test_a_noarch_variant_computes(kit: Kit, settings: Settings) -> None:
    directory = built(build_project(kit("scale_noarch"), settings=settings))
    assert directory.name == "torch-cpu"
    assert use(directory, "print(kernel.scale(torch.ones(2), 3.0).tolist())") == "[3.0, 3.0]"


def test_a_second_build_changes_nothing_and_is_quick(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    directory = built(build_project(project, settings=settings))
    before = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
    start = time.perf_counter()
    report = build_project(project, settings=settings)
    assert time.perf_counter() - start < 1.0
    assert report.variants[0].outcome is Outcome.UP_TO_DATE
    assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == before


def test_a_variant_that_was_changed_by_hand_is_built_again(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    directory = built(build_project(project, settings=settings))
    content = (directory / "__init__.py").read_bytes()
    for spoil in (
        lambda: (directory / "__init__.py").write_text("broken"),
        lambda: (directory / "extra.py").write_text(""),
        (directory / "metadata.json").unlink,
    ):
        spoil()
        (again,) = build_project(project, settings=settings).variants
        assert again.outcome is Outcome.BUILT
        assert again.compiled == 0
        assert (directory / "__init__.py").read_bytes() == content
        assert check_variant(directory, settings=settings) == ()


def test_only_what_depends_on_a_change_is_compiled(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    build_project(project, settings=settings)
    source = project / "csrc" / "add_cpu.cpp"
    source.write_text(source.read_text() + "// changed\n")
    (changed,) = build_project(project, settings=settings).variants
    # The binding names the namespace of the ops, which is new; it is written into the object.
    assert (changed.compiled, changed.reused) == (1, 1)
    package = project / "torch-ext" / "add_stable" / "__init__.py"
    package.write_text(package.read_text() + "# changed\n")
    (changed,) = build_project(project, settings=settings).variants
    assert (changed.compiled, changed.reused) == (0, 2)
    (directory,) = (project / "build").iterdir()
    assert use(directory, "print(kernel.add_one(torch.zeros(2)).tolist())") == "[1.0, 1.0]"


def test_a_header_counts_as_a_source(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    directory = built(build_project(project, settings=settings))
    header = project / "csrc" / "add.h"
    header.write_text(header.read_text() + "// changed\n")
    (changed,) = build_project(project, settings=settings).variants
    assert (changed.outcome, changed.compiled) == (Outcome.BUILT, 2)
    (library,) = directory.glob("*.so")
    assert library.name.startswith("_add_stable_cpu_")


def test_a_new_compiler_compiles_again(kit: Kit, settings: Settings, tmp_path: Path) -> None:
    project = kit("add_stable")
    build_project(project, settings=settings)
    wrapper = tmp_path / "my-g++"
    wrapper.write_text('#!/bin/sh\nexec g++ "$@"\n')
    wrapper.chmod(0o755)
    other = replace(settings, cxx=str(wrapper))
    (again,) = build_project(project, settings=other).variants
    assert (again.outcome, again.compiled) == (Outcome.BUILT, 2)


def test_the_author_is_told_of_warnings(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    source = project / "csrc" / "add_cpu.cpp"
    source.write_text(source.read_text() + '#warning "look here"\n')
    report = build_project(project, settings=settings)
    assert "look here" in format_report(report)
    assert report.exit_code == 0


@pytest.mark.parametrize("name", ["sp ace", "ünï:dol$lar", "#1 quo'te"])
def test_awkward_places(kit: Kit, settings: Settings, tmp_path: Path, name: str) -> None:
    project = kit("add_stable").rename(tmp_path / name)
    (project / "csrc").rename(project / name)
    table = project / "build.toml"
    table.write_text(table.read_text().replace("csrc/", f"{name}/"), encoding="utf-8")
    binding = project / "torch-ext/torch_binding.cpp"
    binding.write_text(binding.read_text().replace('"add.h"', f'"{name}/add.h"'), encoding="utf-8")
    awkward = replace(settings, cache=tmp_path / "cache" / name)
    assert built(build_project(project, settings=awkward)).is_dir()
    (again,) = build_project(project, settings=awkward, force=True).variants
    assert again.reused == 2


def test_a_newer_cpp_library_is_used_on_older_systems(kit: Kit, settings: Settings) -> None:
    directory = built(build_project(kit("modern_cpp"), settings=settings))
    assert use(directory, "print(kernel.modern(2.0))") == "129.5"
    (library,) = directory.glob("*.so")
    from kernel_spec.binary import read_elf

    # One libstdc++ in the process: that of torch, not a copy of our own.
    assert "libstdc++.so.6" in read_elf(library).needed
    assert "libmvec.so.1" in read_elf(library).needed
