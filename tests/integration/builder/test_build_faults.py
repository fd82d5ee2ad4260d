"""What goes wrong in a build is said whole, and leaves build/ as it was."""

import errno
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.check.variant import check_variant
from kernel_builder.errors import (
    BuilderError,
    CheckError,
    CompileError,
    ImportCheckError,
    LinkError,
    StorageError,
    ToolchainError,
)
from kernel_builder.pipeline import build_project
from kernel_builder.progress import SilentReporter
from kernel_builder.report import format_report
from kernel_builder.settings import Settings, read_settings
from kernel_builder.toolchain.cpu import get_compiler

Kit = Callable[[str], Path]
SOURCE = Path(__file__).parents[3] / "src"


def tree(project: Path) -> dict[str, bytes]:
    root = project / "build"
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def fail(project: Path, settings: Settings, kind: type[BuilderError]) -> BuilderError:
    report = build_project(project, settings=settings)
    (only,) = report.variants
    assert report.exit_code == 1
    assert isinstance(only.error, kind), format_report(report)
    assert set(str(only.error).splitlines()) <= set(format_report(report).splitlines())
    return only.error


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def project(kit: Kit, settings: Settings) -> Path:
    """A project that was built well before it was broken."""
    place = kit("add_stable")
    assert build_project(place, settings=settings).exit_code == 0
    return place


def test_every_file_that_does_not_compile_is_shown(project: Path, settings: Settings) -> None:
    before = tree(project)
    edit(project / "csrc/add_cpu.cpp", "+ 1.0f", "+ one")
    edit(project / "torch-ext/torch_binding.cpp", "TORCH_BOX(&add_one)", "TORCH_BOX(&add_two)")
    error = fail(project, settings, CompileError)
    assert isinstance(error, CompileError)
    assert [failure.source for failure in error.failures] == [
        "torch-ext/torch_binding.cpp",
        "csrc/add_cpu.cpp",
    ]
    for word in ("'one' was not declared", "csrc/add_cpu.cpp:10:", "add_two"):
        assert word in str(error)
    log = error.failures[1].log
    assert log is not None
    assert str(log) in str(error)
    assert "-c csrc/add_cpu.cpp" in log.read_text()
    assert tree(project) == before


def test_a_header_that_is_not_listed_is_named(project: Path, settings: Settings) -> None:
    (project / "csrc/more.h").write_text("")
    edit(project / "csrc/add_cpu.cpp", '#include "add.h"', '#include "add.h"\n#include "more.h"')
    assert "csrc/more.h is in the project but not among" in str(
        fail(project, settings, CompileError)
    )


def test_a_header_outside_the_stable_abi_is_explained(project: Path, settings: Settings) -> None:
    edit(project / "build.toml", "[torch]", '[torch]\nstable-abi = "2.10"')
    edit(
        project / "csrc/add_cpu.cpp", '#include "add.h"', '#include "add.h"\n#include <ATen/ATen.h>'
    )
    assert "not part of torch's stable ABI" in str(fail(project, settings, CompileError))


def test_a_forgotten_function_is_named(project: Path, settings: Settings) -> None:
    before = tree(project)
    edit(project / "csrc/add_cpu.cpp", "void add_one", "void another")
    assert "add_one(torch::stable::Tensor&, torch::stable::Tensor const&)" in str(
        fail(project, settings, CheckError)
    )
    assert tree(project) == before


def test_objects_that_do_not_link(project: Path, settings: Settings) -> None:
    before = tree(project)
    for file in ("csrc/add_cpu.cpp", "torch-ext/torch_binding.cpp"):
        source = project / file
        source.write_text(source.read_text() + "int twice() { return 1; }\n")
    error = str(fail(project, settings, LinkError))
    assert "multiple definition of `twice()'" in error
    assert "-Wl,--version-script" in error
    assert tree(project) == before


def test_a_package_that_cannot_be_imported(project: Path, settings: Settings) -> None:
    before = tree(project)
    edit(
        project / "torch-ext/add_stable/__init__.py",
        "import torch\n",
        "import torch\nimport gone\n",
    )
    error = fail(project, settings, ImportCheckError)
    assert "__init__.py:4 imports gone, which is not installed here" in str(error)
    assert "python-depends" in str(error)
    assert "clean process" in str(error)
    assert tree(project) == before


@pytest.mark.parametrize(("module", "listed"), [("triton", ""), ("einops", '["einops"]')])
def test_a_package_that_is_not_installed_here_is_told(
    kit: Kit, settings: Settings, module: str, listed: str
) -> None:
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed, so the import goes through")
    project = kit("scale_noarch")
    init = project / "torch-ext/scale_noarch/__init__.py"
    edit(init, "import torch\n", f"import torch\nimport {module}.deep\n")
    if listed:
        edit(
            project / "build.toml", "[torch-noarch]", f"python-depends = {listed}\n\n[torch-noarch]"
        )
    report = build_project(project, settings=settings)
    assert report.exit_code == 0, format_report(report)
    assert f"not imported, since {module} is not installed here" in format_report(report)


def test_a_library_that_registers_nothing(project: Path, settings: Settings) -> None:
    binding = project / "torch-ext/torch_binding.cpp"
    binding.write_text('#include "registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n')
    assert "registers no op under torch.ops." in str(fail(project, settings, ImportCheckError))


def test_a_crash_at_import_is_told(project: Path, settings: Settings) -> None:
    source = project / "csrc/add_cpu.cpp"
    source.write_text(source.read_text() + "static int crash = (__builtin_trap(), 1);\n")
    assert "signal" in str(fail(project, settings, ImportCheckError))


@pytest.mark.parametrize("code", [0, 3])
def test_code_that_ends_the_process_at_import_is_told(
    kit: Kit, settings: Settings, code: int
) -> None:
    """Whatever it exits with: 0 is no success of its, and 3 is what our own program says of a lacking module."""
    project = kit("scale_noarch")
    init = project / "torch-ext/scale_noarch/__init__.py"
    edit(init, "import torch\n", f"import os\n\nimport torch\n\nos._exit({code})\n")
    said = str(fail(project, settings, ImportCheckError))
    assert "Traceback" not in said
    assert "clean process (exit code 1)" in said


def test_an_op_outside_the_namespace(kit: Kit, settings: Settings) -> None:
    project = kit("scale_noarch")
    edit(
        project / "torch-ext/scale_noarch/__init__.py",
        'add_op_namespace_prefix("scale")',
        '"mine::scale"',
    )
    error = fail(project, settings, CheckError)
    assert "mine::scale" in str(error)
    assert not (project / "build").exists()


def test_a_stable_abi_that_is_newer_than_torch(project: Path, settings: Settings) -> None:
    edit(project / "build.toml", "[torch]", '[torch]\nstable-abi = "2.99"')
    report = build_project(project, settings=settings)
    assert report.exit_code == 1
    assert "needs torch 2.99 or newer" in format_report(report)


def test_a_dependency_that_cannot_be_had(project: Path, settings: Settings) -> None:
    edit(
        project / "build.toml",
        'backend = "cpu"\ndepends = ["torch"]',
        'backend = "cpu"\ndepends = ["cutlass_4_0", "torch"]',
    )
    assert "cutlass_4_0" in str(fail(project, settings, ToolchainError))


def test_a_compiler_that_is_not_there(project: Path, settings: Settings) -> None:
    lost = replace(settings, cxx="no-such-g++")
    report = build_project(project, settings=lost)
    assert report.exit_code == 1
    line = next(line for line in format_report(report).splitlines() if line.startswith("cpu:"))
    for word in ("no-such-g++ not found", "from CXX", "looked in PATH=", "install it"):
        assert word in line
    with pytest.raises(ToolchainError, match="no-such-g"):
        get_compiler(lost)


def test_a_compiler_that_fails(project: Path, settings: Settings, tmp_path: Path) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'libmpfr.so.6: cannot open' >&2\nexit 127\n")
    broken.chmod(0o755)
    error = fail(project, replace(settings, cxx=str(broken)), BuilderError)
    assert "libmpfr.so.6: cannot open" in str(error)


def test_a_compiler_that_is_too_old(project: Path, settings: Settings, tmp_path: Path) -> None:
    old = tmp_path / "g++"
    old.write_text("#!/bin/sh\ncase $1 in -dumpversion) echo 9 ;; *) echo 'g++ 9.4.0' ;; esac\n")
    old.chmod(0o755)
    error = fail(project, replace(settings, cxx=str(old)), ToolchainError)
    assert "g++ 9.4.0" in str(error)
    assert "GCC 11 or newer" in str(error)


def test_a_cache_that_cannot_be_written(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = read_settings({**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file")})
    error = fail(project, settings, StorageError)
    assert str(tmp_path / "file") in str(error)
    assert "set XDG_CACHE_HOME" in str(error)


_SLOW = """
import sys
from pathlib import Path
from kernel_builder.pipeline import build_project
build_project(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_stopped_leaves_what_was_there(
    project: Path, settings: Settings, number: signal.Signals, tmp_path: Path
) -> None:
    before = tree(project)
    edit(project / "csrc/add_cpu.cpp", "+ 1.0f", "+ 2.0f")
    # A compiler can write to the folder of its run alone.
    old = set(settings.cache.glob("work/*/*/run-*/started"))
    slow = tmp_path / "slow-g++"
    slow.write_text(
        '#!/bin/sh\ncase "$*" in *-MD*) touch ../started; sleep 30;; esac\nexec g++ "$@"\n'
    )
    slow.chmod(0o755)
    environ = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "CXX": str(slow),
        "XDG_CACHE_HOME": str(settings.cache.parent),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(project)], env=environ, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    started: set[Path] = set()
    while not started and time.monotonic() < deadline:
        time.sleep(0.05)
        started = set(settings.cache.glob("work/*/*/run-*/started")) - old
    assert started
    process.send_signal(number)
    assert process.wait(timeout=20) != 0
    assert tree(project) == before
    assert [path.name for path in (project / "build").iterdir()] == [
        "torch-stable-abi210-cpu-x86_64-linux"
    ]
    # Nothing that the stopped build left is in the way of the next one.
    assert build_project(project, settings=settings).exit_code == 0
    assert tree(project) != before


@pytest.mark.parametrize("path", ["csrc/add.h", "torch-ext/add_stable/__init__.py"])
def test_files_that_change_after_they_were_planned(
    project: Path, settings: Settings, path: str
) -> None:
    """An id is the hash of its sources: a variant of others must not carry it."""
    before = tree(project)

    class Editor(SilentReporter):
        def begin(self, variant: str) -> None:
            (project / path).open("a").write("\n")

    report = build_project(project, settings=settings, force=True, reporter=Editor())
    (only,) = report.variants
    assert f"files changed while it was built: {path}; build again" in str(only.error)
    assert tree(project) == before
    assert build_project(project, settings=settings).exit_code == 0


def test_a_project_with_any_name_can_be_built(kit: Kit, settings: Settings) -> None:
    for name in ("new\nline", "n" * 250, "q'uo\"te $HOME %d"):
        place = kit("add_stable")
        place = place.rename(place.with_name(name))
        report = build_project(place, settings=settings)
        assert report.exit_code == 0, format_report(report)


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "make room there"), (errno.EACCES, "readable and writable")],
)
def test_what_to_do_about_a_file_system_that_refuses(
    project: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, code: int, advice: str
) -> None:
    def refuse(made: Path, target: Path) -> None:
        raise OSError(code, os.strerror(code), str(target))

    monkeypatch.setattr("kernel_builder.construct.install_variant", refuse)
    (only,) = build_project(project, settings=settings, force=True).variants
    assert isinstance(only.error, StorageError)
    assert advice in str(only.error)


def test_two_builds_at_once_wait_for_each_other(kit: Kit, settings: Settings) -> None:
    project = kit("add_stable")
    environ = {
        **os.environ,
        "PYTHONPATH": str(SOURCE),
        "XDG_CACHE_HOME": str(settings.cache.parent),
    }
    command = [sys.executable, "-m", "kernel_builder", "build", str(project)]
    both = [
        subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    waited = "torch-stable-abi210-cpu-x86_64-linux: another build of it runs; waiting for it\n"
    assert sorted(text.count(waited) for text in told) == [0, 1]
    assert [path.name for path in (project / "build").iterdir()] == [
        "torch-stable-abi210-cpu-x86_64-linux"
    ]
    (directory,) = (project / "build").iterdir()
    assert check_variant(directory, settings=settings) == ()
