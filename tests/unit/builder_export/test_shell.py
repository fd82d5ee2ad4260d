"""Which torch a shell has, what its command sees, and environments that are whole or not there."""

from __future__ import annotations

import os
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder import environment, shell, shell_choice, venvs
from kernel_builder.errors import CommandError, SelectionError, ToolchainUnavailableError
from kernel_builder.planned import Selection
from kernel_builder.process import Finished
from kernel_builder.report import Report
from kernel_builder.scaffold import plan_project, write_project
from kernel_builder.settings import Settings, read_session, read_settings
from kernel_builder.shell import (
    LOADER_NEEDS,
    ShellRequest,
    compose_variables,
    prepare_shell,
    run_shell,
)
from kernel_builder.shell_choice import choose_torch
from kernel_builder.toolchain.torch import TorchInstall
from kernel_builder.venvs import Venv, make_overlay, make_venv
from kernel_spec.system import TorchBuild
from kernel_spec.variant import parse_variant
from kernel_spec.version import MajorMinor
from kernels.local import find_variants

FULL = parse_variant("torch213-cxx11-cpu-x86_64-linux")
OTHER = "torch211-cxx11-cpu-x86_64-linux"
STABLE = parse_variant("torch-stable-abi210-cu130-x86_64-linux")
NOARCH = parse_variant("torch-cuda")
# With this package beside it, the torch of an environment that a test fills is for CUDA.
FOR_CUDA = "nvidia-cuda-runtime"
HERE = TorchBuild("2.13.0+cpu", MajorMinor(2, 13))


@pytest.mark.parametrize(
    ("variant", "stated", "installed", "chosen"),
    [
        (None, None, HERE, "torch==2.13.0"),
        (None, None, None, "torch"),
        (None, "2.12.1", HERE, "torch==2.12.1"),
        (FULL, None, HERE, "torch==2.13.0"),
        (FULL, None, TorchBuild("2.12.0", MajorMinor(2, 12)), "torch==2.13.*"),
        (FULL, None, None, "torch==2.13.*"),
        (STABLE, None, HERE, "torch==2.13.0"),
        (STABLE, None, TorchBuild("2.9.0", MajorMinor(2, 9)), "torch>=2.10"),
        (STABLE, None, replace(HERE, prerelease=True), "torch>=2.10"),
        (STABLE, "2.11.0", HERE, "torch==2.11.0"),
        (NOARCH, None, None, "torch"),
    ],
)
def test_the_torch_fits(variant, stated, installed, chosen) -> None:
    assert choose_torch(variant, stated, installed) == chosen


@pytest.mark.parametrize(
    ("variant", "stated"),
    [(FULL, "2.12.0"), (STABLE, "2.9.1"), (None, "new"), (None, "2.13; x"), (None, "")],
)
def test_a_torch_that_does_not_fit_is_refused(variant, stated) -> None:
    with pytest.raises(SelectionError, match="--torch"):
        choose_torch(variant, stated, HERE)


def test_the_environment_comes_first_and_another_python_does_not_come_at_all() -> None:
    session = read_session(
        {"PATH": "/bin", "PYTHONPATH": "/x", "VIRTUAL_ENV": "/y", "CONDA_PREFIX": "/z", "TERM": "t"}
    )
    found = compose_variables(session, venv=Venv(Path("/v")), cuda=Path("/cuda"), cxx="g++-13")
    assert found == {
        "PATH": "/v/bin:/cuda/bin:/bin",
        "VIRTUAL_ENV": "/v",
        "PYTHONNOUSERSITE": "1",
        "CUDA_HOME": "/cuda",
        "CXX": "g++-13",
        "TERM": "t",
    }


def test_the_loader_gets_what_its_distribution_asks_for() -> None:
    data = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert sorted(data["project"]["dependencies"]) == sorted(LOADER_NEEDS)


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch):
    """Environments that hold a file in place of packages."""
    made: list[list[str]] = []

    def fill(target: Path, requirements, links, variables) -> None:
        made.append(list(requirements))
        site = Venv(target).site_packages
        (site / "torch").mkdir(parents=True)
        stated = [each.partition("==")[2] for each in requirements if each.startswith("torch==")]
        version = stated[0].replace("*", "0") if stated else "2.13.0"
        cuda = "13.0" if FOR_CUDA in requirements else None
        text = f"__version__ = {version!r}\ncuda = {cuda!r}\n"
        (site / "torch" / "version.py").write_text(text)

    monkeypatch.setattr(venvs, "_fill", fill)
    return made


def test_an_environment_is_made_once_for_what_is_in_it(filled, tmp_path: Path) -> None:
    first = make_venv(["torch"], store=tmp_path, variables={})
    assert make_venv(["torch"], store=tmp_path, variables={}) == first
    assert make_venv(["torch==1"], store=tmp_path, variables={}) != first
    assert filled == [["torch"], ["torch==1"]]


def test_one_that_was_killed_is_made_again(filled, tmp_path: Path) -> None:
    first = make_venv(["torch"], store=tmp_path, variables={})
    (first.root / "ready").unlink()
    (first.root / "half").write_text("")
    said: list[str] = []
    make_venv(["torch"], store=tmp_path, variables={}, on_begin=said.append)
    assert len(said) == 1
    assert not (first.root / "half").exists()


def test_pip_that_cannot_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str], **_: object) -> None:
        if "pip" not in command:
            Path(command[-1]).mkdir()
            return
        said = "Looking in links: /x\nERROR: No matching distribution found for nothing\n\n"
        finished = Finished(command=tuple(command), code=1, output=said)
        raise CommandError("pip: exit code 1", finished=finished)

    monkeypatch.setattr(venvs, "run", fail)
    with pytest.raises(ToolchainUnavailableError) as caught:
        make_venv(["nothing"], store=tmp_path, variables={})
    assert "\n  ERROR: No matching distribution found for nothing\n" in str(caught.value)
    assert "PIP_INDEX_URL" in str(caught.value)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_what_is_installed_on_top_stays_there(tmp_path: Path) -> None:
    subprocess.run(["python3", "-m", "venv", "--without-pip", tmp_path / "base"], check=True)
    base = Venv(tmp_path / "base")
    (base.site_packages / "below.py").write_text("")
    script = base.scripts / "tool"
    script.write_text(f"#!{base.scripts}/python\nimport sys, below; print(sys.prefix)\n")
    script.chmod(0o755)
    one, two = (make_overlay(base, key, variables=dict(os.environ)) for key in ("one", "two"))
    (one.site_packages / "above.py").write_text("")
    said = subprocess.run([one.scripts / "tool"], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == str(one.root)
    for venv, code in ((one, 0), (two, 1), (base, 1)):
        command = [venv.scripts / "python", "-c", "import above, below"]
        assert subprocess.run(command, check=False, capture_output=True).returncode == code
    assert make_overlay(base, "one", variables={}) == one


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch):
    """What a shell has asked to be built: names of variants, and the torches whose headers are pinned."""
    asked: list[tuple[set[str], list[str]]] = []

    def build(project: Path, *, selection: Selection, settings: Settings) -> Report:
        asked.append((set(selection.variants), [str(each) for each in settings.torch_versions]))
        return Report(project=project, variants=(), skipped=(), notes=())

    monkeypatch.setattr(shell, "build_project", build)
    return asked


@pytest.fixture
def prepared(filled, built, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Shells whose environments are empty, and in which nothing is built."""
    monkeypatch.setattr(shell, "make_overlay", lambda base, *_, **__: base)
    settings = read_settings({"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tmp_path)})
    session = {"PATH": "/bin", "LOCAL_KERNELS": "a/b=/c"}

    def prepare(project: Path, **words):
        request = ShellRequest(project=project, **words)
        return prepare_shell(request, settings, session=session)

    return prepare


def test_a_development_shell_is_the_users(prepared, filled, project: Path) -> None:
    found = prepared(project, extras=("numpy",))
    assert found.command == ("/bin/sh",)
    assert found.directory == project
    assert found.variables["LOCAL_KERNELS"] == "a/b=/c"
    assert "PYTHONPATH" not in found.variables
    assert {"ninja>=1.11", "numpy", *LOADER_NEEDS} <= set(filled[0])


def test_a_test_shell_finds_the_variant(prepared, copy_kit) -> None:
    project = copy_kit("scale_noarch")
    file = project / "build.toml"
    if "repo-id" not in file.read_text():
        file.write_text(file.read_text() + '\n[general.hub]\nrepo-id = "me/scale"\n')
    found = prepared(project, tests=True, command=("pytest",))
    variant = project / "build" / "torch-cpu"
    assert found.variables["LOCAL_KERNELS"] == f"me/scale={variant}:a/b=/c"
    link = Path(found.variables["PYTHONPATH"], "scale_noarch")
    assert link.readlink() == variant
    assert prepared(project, tests=True).variables["PYTHONPATH"] == str(link.parent)


def test_a_test_shell_has_what_the_tests_of_the_project_need(prepared, filled, copy_kit) -> None:
    project = copy_kit("scale_noarch")
    file = project / "build.toml"
    file.write_text(file.read_text() + '\n[test]\npython-depends = ["scipy>=1.10"]\n')
    prepared(project, tests=True, extras=("numpy",))
    prepared(project)
    assert {"scipy>=1.10", "numpy"} <= set(filled[0])
    assert "scipy>=1.10" not in filled[1]


def test_a_variant_that_there_is_not_is_refused_at_once(prepared, filled, project: Path) -> None:
    for name in (
        "nonsense",
        "torch-stable-abi210-cu118-x86_64-linux",
        "torch212-cxx11-cpu-x86_64-linux",
    ):
        with pytest.raises((SelectionError, ToolchainUnavailableError)):
            prepared(project, tests=True, variant=name)
    assert filled == []


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with torch 2.13, and with a compiler that nobody starts."""
    install = TorchInstall(root=tmp_path, build=HERE)
    for module in (environment, shell, shell_choice):
        monkeypatch.setattr(module, "find_torch", lambda: install)
    monkeypatch.setattr(environment, "find_compiler", lambda _: tmp_path / "g++")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, (str(FULL), [])),
        ({"torch": "2.13.1"}, (str(FULL), [])),
        ({"torch": "2.11"}, (OTHER, ["2.11"])),
        ({"variant": OTHER}, (OTHER, ["2.11"])),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_is_built_is_what_the_torch_of_the_shell_loads(
    prepared, built, copy_kit, words, expected: tuple[str, list[str]]
) -> None:
    prepared(copy_kit("throw_full"), tests=True, **words)
    assert built == [({expected[0]}, expected[1])]


@pytest.mark.usefixtures("here")
def test_the_torch_that_pip_has_chosen_counts(prepared, built, copy_kit, monkeypatch) -> None:
    """Where nothing says which it will be, it is known once it is there."""
    for module in (environment, shell, shell_choice):
        monkeypatch.setattr(module, "find_torch", lambda: None)
    prepared(copy_kit("throw_full"), tests=True)
    assert built == [({str(FULL)}, ["2.13"])]


@pytest.mark.parametrize(
    "words", [{"torch": "2.9.1"}, {"variant": "torch29-cxx11-cpu-x86_64-linux"}]
)
@pytest.mark.usefixtures("here")
def test_a_torch_that_nothing_can_be_built_for_is_refused_at_once(
    prepared, filled, copy_kit, words
) -> None:
    with pytest.raises(SelectionError, match=r"torch29-cxx11-cpu-x86_64-linux: .*, 2\.11, 2\.10$"):
        prepared(copy_kit("throw_full"), tests=True, **words)
    with pytest.raises(SelectionError):
        prepared(copy_kit("add_stable"), tests=True, **words)
    assert filled == []


@pytest.mark.usefixtures("here")
def test_a_named_variant_chooses_its_toolkit(
    prepared, built, copy_kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "_find_cuda", lambda *_: None)
    project = copy_kit("two_cuda")
    for name in (str(STABLE), str(STABLE).replace("130", "132")):
        prepared(project, tests=True, variant=name)
        assert built.pop() == ({name}, [])


@pytest.mark.usefixtures("here")
def test_what_is_for_the_cpu_alone_is_found_by_a_torch_for_cuda(
    prepared, built, tmp_path: Path
) -> None:
    place = tmp_path / "own"
    write_project(plan_project(name="me/own", backends=["cpu"], licence="MIT"), place)
    name = "torch-stable-abi210-cpu-x86_64-linux"
    (place / "build" / name).mkdir(parents=True)
    (place / "build" / name / "metadata.json").write_text("{}")

    def find(**words) -> Path:
        variables = prepared(place, tests=True, **words).variables
        assert built.pop() == ({name}, [])
        return Path(variables["LOCAL_KERNELS"].partition(":")[0].removeprefix("me/own="))

    assert find_variants(find()) == {name: place / "build" / name}
    for words in ({}, {"variant": name}):
        # Not judged by a name: the loader takes it as it takes any one directory.
        found = find(extras=(FOR_CUDA,), **words)
        assert find_variants(found) is None
        assert found.resolve() == place / "build" / name


def test_a_shell_where_nothing_could_be_compiled_is_refused_at_once(
    prepared, filled, tmp_path: Path
) -> None:
    asked = plan_project(name="me/own", backends=["cpu", "rocm"], licence="MIT")
    write_project(asked, tmp_path / "own")
    name = "torch-stable-abi210-rocm71-x86_64-linux"
    with pytest.raises(SelectionError, match="--variant: rocm: not built here: needs hipcc"):
        prepared(tmp_path / "own", variant=name)
    assert filled == []


def test_a_command_that_there_is_not_is_named(prepared, project: Path) -> None:
    there = Path.cwd()
    try:
        with pytest.raises(SelectionError, match="no-such-program: cannot be started"):
            run_shell(prepared(project, command=("no-such-program",)))
    finally:
        os.chdir(there)
