"""Writing and removing: all or nothing, and never what somebody else wrote."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder.errors import ExportError, StorageError
from kernel_builder.export import generated
from kernel_builder.export.clean import plan_removal, remove_export
from kernel_builder.export.generated import MANIFEST, find_manifest
from kernel_builder.export.write import export_project
from kernel_spec.backend import BackendKind


def tree(root: Path) -> dict[str, str]:
    """Return every file with its hash, and every directory."""
    return {
        path.relative_to(root).as_posix(): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        )
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("kit", ["add_device", "scale_noarch", "throw_full"])
def test_a_round_trip_leaves_the_project_as_it_was(
    copy_kit: Callable[[str], Path], kit: str
) -> None:
    project = copy_kit(kit)
    before = tree(project)
    done = export_project(project)
    written = {path for path, what in tree(project).items() if what != "directory"}
    assert written - set(before) == {*done.files, MANIFEST}
    remove_export(plan_removal(project))
    assert tree(project) == before


def test_the_bytes_are_the_same_each_time(project: Path) -> None:
    export_project(project)
    before = tree(project)
    export_project(project)
    assert tree(project) == before


def test_another_place_gets_the_sources_and_stands_alone(project: Path, tmp_path: Path) -> None:
    before = tree(project)
    target = tmp_path / "out"
    done = export_project(project, target)
    assert tree(project) == before
    copied = {path: what for path, what in tree(target).items() if path in before}
    assert copied == before
    assert {"build.toml", "csrc/add_cuda.cu", "CMakeLists.txt"} <= set(done.files)
    again = tmp_path / "again"
    shutil.move(target, again)
    assert export_project(again, backends=[]).backends == done.backends
    remove_export(plan_removal(again))
    assert not again.exists() or not any(again.rglob("*"))


def test_what_others_wrote_is_named_and_kept(project: Path) -> None:
    (project / "pyproject.toml").write_text("mine")
    (project / "cmake").mkdir()
    (project / "cmake" / "kernel.cmake").write_text("mine, too")
    before = tree(project)
    with pytest.raises(ExportError) as caught:
        export_project(project)
    for path in ("pyproject.toml", "cmake/kernel.cmake"):
        assert f"{path} (not written by us)" in str(caught.value)
    assert tree(project) == before
    export_project(project, force=True)
    assert "mine" not in (project / "pyproject.toml").read_text()


def test_what_was_changed_since_is_neither_replaced_nor_removed(project: Path) -> None:
    export_project(project)
    setup = project / "setup.py"
    setup.write_text(f"{setup.read_text()}# mine\n")
    before = tree(project)
    with pytest.raises(ExportError, match=r"setup.py \(changed since it was written\)"):
        export_project(project)
    with pytest.raises(ExportError, match=r"nothing was removed(.|\n)*setup.py"):
        remove_export(plan_removal(project))
    assert tree(project) == before
    remove_export(plan_removal(project), force=True)
    assert not setup.exists()


def test_files_of_an_earlier_time_go(project: Path) -> None:
    export_project(project)
    export_project(project, backends=[BackendKind.CPU])
    assert not (project / "cmake" / "ops" / "cuda.py").exists()
    assert (project / "cmake" / "ops" / "cpu.py").exists()


def test_after_an_interruption_it_is_done_again(project: Path) -> None:
    export_project(project)
    (project / MANIFEST).unlink()
    (project / "setup.py").unlink()
    export_project(project)
    assert find_manifest(project) is not None


def test_a_failure_leaves_the_earlier_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_project(project)
    before = tree(project)
    real = Path.replace
    calls = []

    def fail(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 6:
            raise OSError(28, "No space left on device", str(target))
        return real(self, target)

    monkeypatch.setattr(generated.Path, "replace", fail)
    with pytest.raises(StorageError, match="nothing was written"):
        export_project(project, unique="other")
    monkeypatch.undo()
    assert tree(project) == before


def test_a_new_place_that_cannot_be_filled_is_not_left(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(generated, "_replace_all", fail)
    with pytest.raises(StorageError):
        export_project(project, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_lead_nobody_out_of_the_target(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "cmake").symlink_to(outside)
    with pytest.raises(StorageError, match="links lead out"):
        export_project(project, force=True)
    assert not any(outside.iterdir())
    assert not (project / "setup.py").exists()


def test_a_link_in_the_place_of_a_file_is_replaced_itself(project: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (project / "setup.py").symlink_to(mine)
    with pytest.raises(ExportError, match=r"setup\.py"):
        export_project(project)
    export_project(project, force=True)
    assert mine.read_text() == "mine"
    assert not (project / "setup.py").is_symlink()


@pytest.mark.parametrize("place", ["setup.py", "cmake"])
def test_a_directory_or_file_in_the_way_is_an_error(project: Path, place: str) -> None:
    if place == "cmake":
        (project / place).write_text("")
    else:
        (project / place).mkdir()
    with pytest.raises((ExportError, StorageError)):
        export_project(project, force=True)
    assert not (project / "CMakeLists.txt").exists()


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("{", "not readable"),
        ("[]", "no record"),
        ('{"format": 2}', "newer kernel-builder"),
        ('{"format": 1, "module": "m", "files": {"../../x": ""}, "made": []}', "outside"),
        ('{"format": 1, "module": "m", "files": {"/etc/x": ""}, "made": []}', "outside"),
        ('{"format": 1, "module": "m", "files": {}, "made": [".."]}', "outside"),
        ('{"format": 1, "module": "../m", "files": {}, "made": []}', "outside"),
    ],
)
def test_a_record_that_is_none_removes_nothing(project: Path, record: str, said: str) -> None:
    export_project(project)
    (project / MANIFEST).write_text(record)
    before = tree(project)
    with pytest.raises(ExportError, match=said):
        plan_removal(project)
    assert tree(project) == before


def test_what_pip_and_cmake_made_goes_and_the_rest_stays(project: Path) -> None:
    export_project(project)
    module = project / "torch-ext" / "add_device"
    work = project / "_cmake_build"
    variant = project / "build" / "torch-stable-abi210-cpu-x86_64-linux"
    for place in (work, variant, project / "build" / "CMakeFiles", module / "__pycache__"):
        place.mkdir(parents=True)
    (work / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    (variant / "metadata.json").write_text("{}")
    cache = f"CMAKE_HOME_DIRECTORY:INTERNAL={os.fspath(project)}\n"
    (project / "build" / "CMakeCache.txt").write_text(cache)
    (project / "build" / "build.ninja").write_text("")
    foreign = project / "other"
    foreign.mkdir()
    (foreign / "CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/somewhere/else\n")
    (module / "_add_device_cpu_0123456789ab.abi3.so").write_bytes(b"")
    (module / "mine.so").write_bytes(b"")
    (module / "_ops.py").write_bytes((project / "cmake" / "ops" / "cpu.py").read_bytes())
    (module / "__pycache__" / "_ops.cpython-311.pyc").write_bytes(b"")
    (module / "__pycache__" / "other.cpython-311.pyc").write_bytes(b"")
    remove_export(plan_removal(project))
    left = {path for path, what in tree(project).items() if what != "directory"}
    assert left >= {
        f"build/{variant.name}/metadata.json",
        "other/CMakeCache.txt",
        "torch-ext/add_device/mine.so",
        "torch-ext/add_device/__pycache__/other.cpython-311.pyc",
    }
    assert not work.exists()
    assert not [path for path in left if "_ops" in path or "abi3" in path or "ninja" in path]
    assert sorted(path.name for path in (project / "build").iterdir()) == [variant.name]


def test_an_ops_file_that_somebody_wrote_stays(project: Path) -> None:
    export_project(project)
    ops = project / "torch-ext" / "add_device" / "_ops.py"
    ops.write_text("import torch\nops = torch.ops.mine\n")
    remove_export(plan_removal(project))
    assert ops.exists()


def test_the_record_names_hashes(project: Path) -> None:
    export_project(project)
    record = json.loads((project / MANIFEST).read_text())
    data = (project / "CMakeLists.txt").read_bytes()
    assert record["files"]["CMakeLists.txt"] == hashlib.sha256(data).hexdigest()
    assert record["made"] == ["cmake", "cmake/include", "cmake/include/torch", "cmake/ops"]
