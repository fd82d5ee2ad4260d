"""The other files: what pip is told, what is asked of the machine, and that each can be read."""

from __future__ import annotations

import ast
import runpy
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_builder.config.read import read_build
from kernel_builder.export.backends import plan_export
from kernel_builder.export.files import render_export
from kernel_builder.package import format_ops
from kernel_builder.plan import current_op_id
from kernel_builder.sources import read_sources
from kernel_spec.backend import BackendKind


def render(project: Path) -> dict[str, str]:
    build = read_build(project)
    backends = plan_export(build, read_sources(project, build)).backends
    files = render_export(build, backends, project=project)
    return {path: data.decode() for path, data in files.items()}


def constants(source: str) -> dict[str, Any]:
    """Return the constants of a module, as any Python since 3.9 reads it."""
    tree = ast.parse(source, feature_version=(3, 9))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def test_pip_is_told_the_name_the_version_and_the_licence(project: Path) -> None:
    data = tomllib.loads(render(project)["pyproject.toml"])
    assert data["project"]["name"] == "add-device"
    assert data["project"]["version"] == "1"
    assert data["project"]["license"] == "Apache-2.0"
    # torch among them would be another torch than the one that the kernel is for.
    assert not [name for name in data["build-system"]["requires"] if name.startswith("torch")]


def test_a_licence_in_free_text_is_left_out(project: Path) -> None:
    file = project / "build.toml"
    file.write_text(file.read_text().replace("Apache-2.0", 'Ours, see \\"LICENCE\\"'))
    assert "license" not in tomllib.loads(render(project)["pyproject.toml"])["project"]


def test_setup_names_every_source_and_what_each_backend_needs(project: Path) -> None:
    file = project / "build.toml"
    text = file.read_text().replace(
        "[torch]", '[general.cuda]\npython-depends = ["nvidia-cutlass-dsl"]\n\n[torch]'
    )
    file.write_text(text.replace("edition = 5", 'edition = 5\npython-depends = ["tvm-ffi"]'))
    extra = project / "torch-ext" / "add_device" / "data" / "table.pyi"
    extra.parent.mkdir()
    extra.write_text("")
    found = constants(render(project)["setup.py"])
    assert found["SOURCES"] == [
        "csrc/add.h",
        "csrc/add_cpu.cpp",
        "csrc/add_cuda.cu",
        "torch-ext/torch_binding.cpp",
    ]
    assert found["BACKENDS"] == {
        "cpu": ["2.10", ["apache-tvm-ffi"]],
        "cuda": ["2.10", ["apache-tvm-ffi", "nvidia-cutlass-dsl"]],
    }
    assert found["PACKAGES"] == ["add_device", "add_device.data"]
    assert found["PACKAGE_DATA"] == {"add_device.data": ["table.pyi"]}
    assert {"build.toml", "CMakeLists.txt", "cmake/kernel.cmake"} <= set(found["DEPENDS"])


def test_full_interface_needs_the_torch_that_it_was_built_for(
    copy_kit: Callable[[str], Path],
) -> None:
    assert constants(render(copy_kit("throw_full"))["setup.py"])["BACKENDS"] == {"cpu": ["", []]}


def test_the_ops_have_the_ids_of_the_build(project: Path) -> None:
    files = render(project)
    build = read_build(project)
    for kind in (BackendKind.CPU, BackendKind.CUDA):
        op_id = current_op_id(build, read_sources(project, build), kind)
        assert files[f"cmake/ops/{kind.value}.py"].endswith(format_ops(op_id, compiled=True))
        assert f"kernel_library({op_id} " in files["CMakeLists.txt"]


def test_without_machine_code_there_is_no_cmake(copy_kit: Callable[[str], Path]) -> None:
    project = copy_kit("scale_noarch")
    files = render(project)
    assert set(files) == {"pyproject.toml", "setup.py", "torch-ext/scale_noarch/_ops.py"}
    assert constants(files["setup.py"])["REQUIREMENTS"][0] == "torch"
    ids = constants(files["torch-ext/scale_noarch/_ops.py"])["_IDS"]
    build = read_build(project)
    assert ids == {
        kind.value: current_op_id(build, read_sources(project, build), kind)
        for kind in build.general.backends
    }
    assert "cmake" not in files["pyproject.toml"]


@pytest.mark.parametrize("kit", ["add_stable", "scale_noarch"])
def test_a_setuptools_that_cannot_read_the_project_is_told_in_one_line(
    copy_kit: Callable[[str], Path], kit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = tmp_path / "setup.py"
    setup.write_text(render(copy_kit(kit))["setup.py"])
    monkeypatch.setattr("setuptools.__version__", "65.5.0")
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(setup))
    assert (
        "setuptools 65.5.0 cannot read this pyproject.toml; do: pip install 'setuptools>=77'"
        in (str(caught.value))
    )


@pytest.fixture
def environment(project: Path, tmp_path: Path) -> dict[str, Any]:
    place = tmp_path / "environment.py"
    place.write_text(render(project)["cmake/environment.py"])
    ast.parse(place.read_text(), feature_version=(3, 9))
    return runpy.run_path(str(place))


@pytest.mark.parametrize(
    ("backends", "facts", "wanted", "chosen"),
    [
        (["cpu", "cuda"], {"cuda": None}, "", "cpu"),
        (["cpu", "cuda"], {"cuda": "13.0"}, "", "cuda"),
        (["cpu", "cuda"], {"cuda": None}, "cuda", "cuda"),
        (["cpu", "rocm"], {"cuda": None, "hip": "7.1"}, "", "rocm"),
        (["cpu"], {"cuda": "13.0"}, "", "cpu"),
        (["cuda"], {"cuda": None}, "", "cuda"),
    ],
)
def test_the_backend_is_that_of_torch(
    environment: dict[str, Any],
    backends: list[str],
    facts: dict[str, str | None],
    wanted: str,
    chosen: str,
) -> None:
    assert environment["choose_backend"](backends, wanted, facts) == chosen


def test_a_backend_that_is_not_there_is_refused(environment: dict[str, Any]) -> None:
    error = environment["NotUsableError"]
    with pytest.raises(error, match="expected one of cpu, cuda"):
        environment["choose_backend"](["cpu", "cuda"], "xpu", {})
    with pytest.raises(
        error, match=r"torch 2\.13\.0 is for cpu, and the project is for cuda, rocm"
    ):
        environment["choose_backend"](["cuda", "rocm"], "", {"__version__": "2.13.0"})


@pytest.mark.parametrize("form", ["{}", "import site; site.addsitedir('{}')"])
def test_torch_is_found_where_the_environment_of_a_build_hides_it(
    environment: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    site, base = tmp_path / "site", tmp_path / "base"
    site.mkdir()
    (base / "torch").mkdir(parents=True)
    (base / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = None\n")
    (site / "base.pth").write_text(form.format(base))
    names = environment["find_package"].__globals__
    monkeypatch.setattr(names["importlib"].util, "find_spec", lambda _: None)
    monkeypatch.setattr(names["sysconfig"], "get_path", lambda _: str(site))
    assert environment["find_package"]("torch", "version.py") == base / "torch"
    assert environment["describe"](["cpu"])["release"] == "2.13"
    (site / "base.pth").unlink()
    with pytest.raises(environment["NotUsableError"], match="--no-build-isolation"):
        environment["need_package"]("torch", "version.py", "torch")
