"""What create-pyproject writes for a kernel of TVM FFI: the right package, for every Python from 3.9 on."""

from __future__ import annotations

import ast
import shutil
import tomllib
from pathlib import Path

import pytest

from kernel_builder.export.clean import plan_removal, remove_export
from kernel_builder.export.write import export_project

KIT = Path(__file__).parents[2] / "kits" / "tvm_add"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    leave_out = shutil.ignore_patterns("build")
    place = Path(shutil.copytree(KIT, tmp_path / "tvm_add", ignore=leave_out))
    export_project(place)
    return place


def test_every_python_file_is_valid_below_3_12(project: Path) -> None:
    written = [*project.glob("*.py"), *project.glob("cmake/**/*.py")]
    assert len(written) == 4
    for path in written:
        ast.parse(path.read_text(), path.name, feature_version=(3, 9))


def test_the_distribution_is_that_of_apache_tvm_ffi_and_torch_is_not_needed(project: Path) -> None:
    document = tomllib.loads((project / "pyproject.toml").read_text())
    assert "apache-tvm-ffi==0.1.*" in document["build-system"]["requires"]
    setup = (project / "setup.py").read_text()
    assert 'DISTRIBUTION = "apache-tvm-ffi"' in setup
    # "tvm-ffi" alone is somebody else's name on package indexes.
    for text in ((project / "pyproject.toml").read_text(), setup):
        assert '"tvm-ffi"' not in text.replace('FRAMEWORK = "tvm-ffi"', "")
    assert "_TORCH" not in (project / "CMakeLists.txt").read_text()


def test_cmake_links_tvm_ffi_and_exports_its_functions_alone(project: Path) -> None:
    text = (project / "CMakeLists.txt").read_text()
    assert text.count("kernel_require_tvm_ffi(0.1)") == 2
    assert text.count(" TVM_FFI tvm_ffi)") == 2
    assert "kernel_require_torch" not in text
    assert "__tvm_ffi_*" in (project / "cmake/exports.map").read_text()
    assert not (project / "cmake/include").exists()


def test_what_an_installation_in_place_made_is_removed_and_the_authors_files_stay(
    project: Path,
) -> None:
    module = project / "tvm-ffi-ext/tvm_add"
    ops = (project / "cmake/ops/cpu.py").read_text()
    (module / "_ops.py").write_text(ops)
    (module / "_tvm_add_cpu_0123456789ab.so").write_bytes(b"")
    (module / "mine.so").write_bytes(b"")
    remove_export(plan_removal(project))
    assert sorted(path.name for path in module.iterdir()) == ["__init__.py", "mine.so"]
    assert sorted(path.name for path in project.iterdir()) == ["build.toml", "csrc", "tvm-ffi-ext"]
