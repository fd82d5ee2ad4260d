"""What is written is what pip and CMake build, and what is built can be imported and computes."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_builder.config.read import read_build
from kernel_builder.environment import detect_host, prepare_environment
from kernel_builder.export.clean import plan_removal, remove_export
from kernel_builder.export.write import export_project
from kernel_builder.flags import compile_flags
from kernel_builder.plan import plan
from kernel_builder.planned import Selection
from kernel_builder.settings import read_settings
from kernel_builder.sources import read_sources
from kernel_builder.units import CompileUnit
from kernel_spec.backend import BackendKind
from kernel_spec.binary import read_elf

SANITY = """
import torch
import {0} as kernel
assert kernel.add_one(torch.arange(4.0)).tolist() == [1, 2, 3, 4]
print(kernel.__file__)
"""


@pytest.fixture
def project(copy_kit: Callable[[str], Path]) -> Path:
    return copy_kit("add_stable")


@pytest.fixture(autouse=True)
def _clean_environment(environment) -> Iterator[None]:
    yield
    names = ["add-stable", "throw-full", "scale-noarch"]
    environment.do("python", "-m", "pip", "uninstall", "-q", "-y", *names)


def pip(environment, *words: object, **more: object) -> str:
    return environment.do("python", "-m", "pip", *words, **more)


def import_it(environment, path: Path | None = None) -> Path:
    """Run the sanity script, and return where the kernel came from."""
    more = {} if path is None else {"PYTHONPATH": str(path)}
    code = SANITY.format("add_stable")
    return Path(environment.do("python", "-W", "ignore", "-c", code, more=more).strip())


def tree(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        )
        for path in root.rglob("*")
        if "__pycache__" not in path.parts
    }


def test_in_place_then_changed_then_gone(environment, project: Path, tmp_path: Path) -> None:
    before = tree(project)
    export_project(project)
    # A CMake that is first on the PATH is not that of the interpreter.
    decoy = tmp_path / "decoy"
    decoy.mkdir()
    for name in ("cmake", "ninja"):
        (decoy / name).write_text("#!/bin/sh\necho wrong tool; exit 1\n")
        (decoy / name).chmod(0o755)
    path = {"PATH": f"{decoy}:/usr/local/bin:/usr/bin:/bin"}
    words = ["install", "--no-build-isolation", "--no-deps", "-e", project]
    pip(environment, *words, more=path)
    assert import_it(environment) == project / "torch-ext" / "add_stable" / "__init__.py"
    source = project / "csrc" / "add_cpu.cpp"
    changed = source.read_text().replace("+ 1", "+ 2")
    assert changed != source.read_text()
    source.write_text(changed)
    pip(environment, *words, more=path)
    failed = environment.run("python", "-W", "ignore", "-c", SANITY.format("add_stable"))
    assert "AssertionError" in failed.stderr
    source.write_text(changed.replace("+ 2", "+ 1"))
    remove_export(plan_removal(project))
    assert tree(project) == before


def test_a_wheel_serves_elsewhere(environment, project: Path, tmp_path: Path) -> None:
    export_project(project)
    pip(environment, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, project)
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.startswith("add_stable-1-cp39-abi3-linux_")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith("METADATA")]
        assert "Requires-Dist: torch>=2.10\n" in archive.read(metadata).decode()
        [library] = [name for name in names if name.endswith(".abi3.so")]
        archive.extract(library, tmp_path)
    facts = read_elf(tmp_path / library)
    assert "libtorch.so" in facts.needed
    assert not facts.rpath
    pip(environment, "install", "-q", "--no-deps", "--target", tmp_path / "site", wheel)
    assert import_it(environment, tmp_path / "site").is_relative_to(tmp_path)


def test_an_environment_of_the_builds_own_finds_the_torch(environment, project: Path) -> None:
    export_project(project)
    pip(environment, "install", "-q", "--no-deps", project)
    assert "site-packages" in import_it(environment).parts


def test_a_source_distribution_is_whole(environment, project: Path, tmp_path: Path) -> None:
    export_project(project)
    code = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
    environment.do("python", "-c", code, tmp_path, cwd=project)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "out", filter="data")
    [top] = (tmp_path / "out").iterdir()
    pip(environment, "install", "-q", "--no-build-isolation", "--no-deps", top)
    assert "site-packages" in import_it(environment).parts


def test_cmake_alone_gives_a_package(environment, project: Path, tmp_path: Path) -> None:
    export_project(project)
    tools = [environment.bin / "cmake"]
    tools += [Path(found)] if (found := shutil.which("cmake", path="/usr/bin")) else []
    for number, cmake in enumerate(tools):
        place, site = tmp_path / f"build {number}", tmp_path / f"site {number}"
        words = ["-S", project, "-B", place, "-G", "Ninja"]
        words.append(f"-DPython_EXECUTABLE={environment.bin / 'python'}")
        environment.do(cmake, *words)
        environment.do(cmake, "--build", place, "-j", "2")
        environment.do(cmake, "--install", place, "--prefix", site)
        for path in (place / "package", site):
            assert import_it(environment, path).is_relative_to(path)


def test_wishes_of_the_environment_are_heard(environment, project: Path, tmp_path: Path) -> None:
    export_project(project)
    launcher = tmp_path / "bin" / "ccache"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\necho "$1" >> "{tmp_path}/launched"\nexec "$@"\n')
    launcher.chmod(0o755)
    more = {
        "PATH": f"{launcher.parent}:/usr/local/bin:/usr/bin:/bin",
        "CMAKE_ARGS": '-DCMAKE_CXX_FLAGS="-DFROM_ARGS -DMORE=1"',
        "DEBUG": "1",
        "MAX_JOBS": "1",
    }
    words = ["install", "-v", "--no-build-isolation", "--no-deps", project]
    pip(environment, *words, more=more)
    assert (tmp_path / "launched").read_text().count("c++") == 2
    [commands] = project.glob("_cmake_build/cmake/compile_commands.json")
    for each in json.loads(commands.read_text()):
        found = shlex.split(each["command"])
        assert {"-DFROM_ARGS", "-DMORE=1", "-g"} <= set(found)
        assert not {"-O3", "-DNDEBUG"} & set(found)
    pip(environment, *words)
    again = commands.read_text()
    assert "FROM_ARGS" not in again
    assert "-O3" in again


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"MAX_JOBS": "many"}, "MAX_JOBS=many: expected a number"),
        ({"KERNEL_BACKEND": "xpu"}, "no backend xpu here; expected one of cpu"),
        ({"CXX": "/no/such/compiler"}, "cmake -S failed with exit code"),
    ],
)
def test_wishes_that_cannot_be_are_errors(
    environment, project: Path, more: dict[str, str], said: str
) -> None:
    export_project(project, backends=[BackendKind.CPU])
    words = ["wheel", "-v", "--no-build-isolation", "--no-deps", project]
    done = environment.run("python", "-m", "pip", *words, more=more)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_a_stale_export_warns(environment, project: Path, tmp_path: Path) -> None:
    export_project(project)
    file = project / "build.toml"
    file.write_text(f"{file.read_text()}# changed\n")
    words = ["-S", project, "-B", tmp_path / "b", "-G", "Ninja"]
    words.append(f"-DPython_EXECUTABLE={environment.bin / 'python'}")
    said = " ".join(environment.do("cmake", *words).split())
    assert "build.toml is not what CMakeLists.txt was written from" in said


def test_the_full_interface(environment, copy_kit: Callable[[str], Path], tmp_path: Path) -> None:
    project = copy_kit("throw_full")
    export_project(project)
    pip(environment, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, project)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("METADATA")]
        assert "Requires-Dist: torch==2.13.*\n" in archive.read(metadata).decode()
    pip(environment, "install", "-q", "--no-deps", wheel)
    environment.do("python", "-W", "ignore", "-c", "import torch, throw_full")


def test_without_machine_code(environment, copy_kit: Callable[[str], Path], tmp_path: Path) -> None:
    project = copy_kit("scale_noarch")
    before = tree(project)
    export_project(project)
    pip(environment, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, project)
    assert [path.name for path in tmp_path.glob("*.whl")] == ["scale_noarch-1-py3-none-any.whl"]
    pip(environment, "install", "-q", "--no-build-isolation", "--no-deps", "-e", project)
    code = "import torch, scale_noarch as s; print(s.__file__, s._ops.add_op_namespace_prefix('x'))"
    said = environment.do("python", "-W", "ignore", "-c", code)
    assert f"{project}/torch-ext/scale_noarch/__init__.py _scale_noarch_cpu_" in said
    remove_export(plan_removal(project))
    assert tree(project) == before


def expected_flags(project: Path) -> dict[str, set[str]]:
    """Return what the build compiles each file with, but for places."""
    settings = read_settings()
    build = read_build(project)
    host = detect_host(settings)
    cpu = Selection(backends=frozenset({BackendKind.CPU}))
    [made] = plan(build, read_sources(project, build), host=host, selection=cpu).variants
    machine = prepare_environment(made, settings)

    def flags(unit: CompileUnit) -> set[str]:
        found = compile_flags(unit, made, machine, project)
        own = ("-frandom-seed=", "-ffile-prefix-map=", "-I", "-iquote", "-isystem")
        return {flag for flag in found if not flag.startswith(own)}

    return {str(project / unit.source): flags(unit) for unit in made.units}


def test_the_commands_are_those_of_the_build(environment, project: Path, tmp_path: Path) -> None:
    file = project / "build.toml"
    odd = '["-DODD=\\"a b;c, $d\\"", "-DANGLE=<1>", "-Wno-unused"]'
    head, mark, rest = file.read_text().partition('backend = "cpu"\n')
    file.write_text(f"{head}{mark}cxx-flags = {odd}\n{rest}")
    export_project(project)
    words = ["-S", project, "-B", tmp_path / "b", "-G", "Ninja"]
    words.append(f"-DPython_EXECUTABLE={environment.bin / 'python'}")
    environment.do("cmake", *words)
    commands = json.loads((tmp_path / "b" / "compile_commands.json").read_text())
    # CMake writes a dollar as Ninja and a shell need it.
    found = {
        each["file"]: [word.replace("\\$$", "$") for word in shlex.split(each["command"])]
        for each in commands
    }
    expected = expected_flags(project)
    assert set(found) == set(expected)
    for place, flags in expected.items():
        assert flags <= set(found[place]), flags - set(found[place])
    assert f"-I{project}/csrc" in found[str(project / "csrc" / "add_cpu.cpp")]
    environment.do("cmake", "--build", tmp_path / "b")


def test_this_interpreter_is_not_in_the_environment(environment) -> None:
    code = "import sys; print(sys.prefix); import kernel_builder"
    done = environment.run("python", "-c", code)
    assert "No module named" in done.stderr
    assert sys.prefix not in done.stdout
