"""What a build of a kernel of TVM FFI gives, what it refuses, and that the bytes are always the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.variant import check_variant
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import Outcome, Report, format_report
from kernel_builder.settings import SandboxMode, Settings
from kernel_spec.backend import BackendKind
from kernel_spec.binary import read_device_code, read_elf

KITS = Path(__file__).parents[2] / "kits"
SOURCE = Path(__file__).parents[3] / "src"
CPU, CUDA = BackendKind.CPU, BackendKind.CUDA
Kit = Callable[[str], Path]


def build(project: Path, settings: Settings, backend: BackendKind = CPU, *archs: str) -> Report:
    selection = Selection(backends=frozenset({backend}), archs=archs)
    return build_project(project, selection=selection, settings=settings)


def test_a_variant_is_whole_and_asks_for_nothing_but_tvm_ffi(built: Path) -> None:
    directory = built / "build" / "tvm-ffi01-cpu-x86_64-linux"
    metadata = json.loads((directory / "metadata.json").read_text())
    library = directory / f"{metadata['id']}.so"
    assert sorted(path.name for path in directory.iterdir()) == sorted(
        ["__init__.py", "_ops.py", library.name, "metadata.json"]
    )
    facts = read_elf(library)
    assert "libtvm_ffi.so" in facts.needed
    assert not [name for name in facts.needed if "torch" in name or "python" in name]
    assert [each.name for each in facts.symbols if each.defined] == ["__tvm_ffi_add_one"]
    assert not [each.name for each in facts.symbols if each.name.startswith(("Py", "_Py"))]
    assert facts.rpath == ()
    assert metadata["kernels-ext"]["depends"]["tvm-ffi"]["origin"] == "apache-tvm-ffi"
    assert check_variant(directory) == ()


def test_a_second_build_changes_nothing_and_only_what_changed_is_compiled(
    kit: Kit, settings: Settings
) -> None:
    project = kit("tvm_add")
    build(project, settings)
    (again,) = build(project, settings).variants
    assert again.outcome is Outcome.UP_TO_DATE
    source = project / "csrc/add_cpu.cpp"
    source.write_text(source.read_text() + "// changed\n")
    (changed,) = build(project, settings).variants
    # The binding does not name the library, so it stays.
    assert (changed.compiled, changed.reused) == (1, 1)


def test_a_variant_is_built_without_a_sandbox_too(kit: Kit, settings: Settings) -> None:
    report = build(kit("tvm_add"), replace(settings, sandbox=SandboxMode.OFF))
    assert report.exit_code == 0, format_report(report)


@pytest.mark.parametrize(
    ("path", "old", "new", "words"),
    [
        (
            "tvm-ffi-ext/tvm_ffi_binding.cpp",
            "TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_one, add_one);",
            "",
            "exports no function through TVM FFI",
        ),
        # Headers that a kernel of TVM FFI has no right to.
        (
            "csrc/add_cpu.cpp",
            '#include "add.h"',
            '#include "add.h"\n#include <Python.h>',
            "Python.h",
        ),
        (
            "csrc/add_cpu.cpp",
            '#include "add.h"',
            '#include "add.h"\n#include <torch/csrc/stable/tensor.h>',
            "torch/csrc/stable/tensor.h",
        ),
        (
            "csrc/add_cpu.cpp",
            "void add_one(",
            "void add_another(",
            "add_one(tvm::ffi::TensorView, tvm::ffi::TensorView)",
        ),
        (
            "tvm-ffi-ext/tvm_add/__init__.py",
            '__all__ = ["add_one"]',
            '__all__ = ["add_one", "add_two"]',
            "__all__ names what the module does not have: add_two",
        ),
        (
            "tvm-ffi-ext/tvm_add/__init__.py",
            "from ._ops import ops",
            "from ._ops import ops\nops.add_two",
            "add_two",
        ),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_left(
    kit: Kit, settings: Settings, *, path: str, old: str, new: str, words: str
) -> None:
    project = kit("tvm_add")
    text = (project / path).read_text()
    assert old in text
    (project / path).write_text(text.replace(old, new, 1))
    report = build(project, settings)
    assert report.exit_code == 1
    assert words in format_report(report)
    assert not (project / "build").exists() or not list((project / "build").iterdir())


def test_the_author_is_told_of_a_call_that_no_function_answers(
    kit: Kit, settings: Settings
) -> None:
    project = kit("tvm_add")
    module = project / "tvm-ffi-ext/tvm_add/__init__.py"
    module.write_text(module.read_text() + "\n\ndef add_two(x):\n    ops.add_two(x)\n")
    report = build(project, settings)
    assert report.exit_code == 0
    assert "ops.add_two is not in this library, which has add_one" in format_report(report)


def test_a_package_that_is_not_here_leaves_the_import_unproved(
    kit: Kit, settings: Settings
) -> None:
    project = kit("tvm_add")
    module = project / "tvm-ffi-ext/tvm_add/__init__.py"
    module.write_text(module.read_text() + "\n\nimport cupy  # noqa: E402, F401\n")
    report = build(project, settings)
    assert report.exit_code == 0
    assert "not imported, since cupy is not installed here" in format_report(report)


def test_a_kernel_that_needs_another_is_built_without_it(kit: Kit, settings: Settings) -> None:
    project = kit("tvm_add")
    table = project / "build.toml"
    needs = '[general]\nkernel-depends = [{ repo-id = "acme/base", version = 1 }]'
    table.write_text(table.read_text().replace("[general]", needs, 1))
    module = project / "tvm-ffi-ext/tvm_add/__init__.py"
    more = 'from kernels import get_kernel_dep\n\n\nclass Layer(get_kernel_dep("acme/base").Layer):\n    pass\n'
    module.write_text(f"{module.read_text()}\n\n{more}")
    report = build(project, settings)
    assert report.exit_code == 0, format_report(report)
    assert "imported with stand-ins for acme/base" in format_report(report)


def test_a_cuda_variant_is_built_without_a_gpu_and_its_symbols_are_bound(
    kit: Kit, cuda_settings: Settings
) -> None:
    project = kit("tvm_add")
    report = build(project, cuda_settings, CUDA, "9.0", "10.0")
    (made,) = report.variants
    assert made.error is None, format_report(report)
    assert made.path is not None
    assert made.path.name == "tvm-ffi01-cu130-x86_64-linux"
    (library,) = made.path.glob("*.so")
    facts = read_elf(library)
    assert {"libtvm_ffi.so", "libcudart.so.13"} <= set(facts.needed)
    assert [each.name for each in facts.symbols if each.defined] == ["__tvm_ffi_add_one"]
    assert {image.arch for image in read_device_code(library)} == {"9.0", "10.0"}
    # The CPU's function of the same name is in the CPU's variant alone.
    assert b"csrc/add_cpu" not in library.read_bytes()


_BUILD = """
import os, sys
from pathlib import Path
from kernel_builder.pipeline import build_project
from kernel_builder.planned import Selection
from kernel_builder.report import format_report
from kernel_spec.backend import BackendKind
os.umask(int(sys.argv[2], 8))
selection = Selection(
    backends=frozenset({BackendKind(sys.argv[3])}), archs=("9.0",) * (sys.argv[3] == "cuda")
)
report = build_project(Path(sys.argv[1]), jobs=int(sys.argv[4]), selection=selection)
print(format_report(report))
sys.exit(report.exit_code)
"""


def build_apart(project: Path, *words: str, cache: Path, **variables: str) -> dict[str, bytes]:
    pip = {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **pip, **variables}
    environ["XDG_CACHE_HOME"] = str(cache)
    command = [sys.executable, "-c", _BUILD, str(project), *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    root = project / "build"
    return {
        f"{path.relative_to(root)} {path.stat().st_mode:o}": path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_two_places_two_people_one_result(
    cuda_settings: Settings, tmp_path: Path, backend: str
) -> None:
    first = tmp_path / "a" / "work"
    second = tmp_path / "another-place" / "with a longer name" / "checkout"
    for place in (first, second):
        shutil.copytree(KITS / "tvm_add", place, ignore=shutil.ignore_patterns("build"))
    other = tmp_path / "cache2"
    # The toolkit is fetched once; objects and stubs are made anew.
    toolchains = other / "kernel-builder" / "toolchains"
    toolchains.parent.mkdir(parents=True)
    shutil.copytree(cuda_settings.cache / "toolchains", toolchains, symlinks=True)
    one = build_apart(
        first, "022", backend, "1", cache=cuda_settings.cache.parent, LC_ALL="C.UTF-8", TZ="UTC"
    )
    two = build_apart(second, "077", backend, "2", cache=other, TZ="Asia/Seoul", PYTHONHASHSEED="7")
    assert two == one
    assert len(one) == 4
