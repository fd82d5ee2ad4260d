"""What create-pyproject writes is what pip and CMake build, without torch, and it computes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder.export.clean import plan_removal, remove_export
from kernel_builder.export.write import export_project
from kernel_builder.settings import Settings
from kernel_builder.toolchain.cuda import get_cuda
from kernel_spec.binary import read_elf

Kit = Callable[[str], Path]
USE = """
import sys
import numpy as np
import tvm_add
x = np.ones(2, dtype=np.float32)
print(tvm_add.add_one(x, np.empty_like(x)).tolist(), "torch" in sys.modules)
"""


def run(
    tools: Path, *words: object, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    left_out = ("PYTHON", "VIRTUAL_ENV", "CMAKE_", "KERNEL", "CUDA", "MAX_JOBS", "DEBUG")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    kept |= {"PATH": f"{tools / 'bin'}:/usr/local/bin:/usr/bin:/bin", "MAX_JOBS": "2", **variables}
    return subprocess.run(
        [tools / "bin" / str(words[0]), *map(str, words[1:])],
        cwd=cwd,
        env=kept,
        capture_output=True,
        text=True,
        check=False,
    )


def do(tools: Path, *words: object, cwd: Path, **variables: str) -> str:
    done = run(tools, *words, cwd=cwd, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture
def project(kit: Kit) -> Path:
    place = kit("tvm_add")
    text = (place / "build.toml").read_text()
    cuda = 'src = ["csrc/add_cuda.cu"]'
    assert cuda in text
    # One capability takes seconds.
    text = text.replace(cuda, f'{cuda}\ncuda-capabilities = ["9.0"]')
    (place / "build.toml").write_text(text)
    return place


def test_pip_installs_it_and_it_computes(tools: Path, project: Path, tmp_path: Path) -> None:
    export_project(project)
    target = tmp_path / "site"
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--target", target]
    do(tools, "python", "-m", "pip", "install", *options, project, cwd=tmp_path)
    assert (
        do(tools, "python", "-c", USE, cwd=tmp_path, PYTHONPATH=str(target)) == "[2.0, 2.0] False"
    )
    (record,) = target.glob("tvm_add-1.dist-info/METADATA")
    assert "Requires-Dist: apache-tvm-ffi==0.1.*" in record.read_text()
    (library,) = target.glob("tvm_add/*.so")
    facts = read_elf(library)
    assert [each.name for each in facts.symbols if each.defined] == ["__tvm_ffi_add_one"]
    assert "libtvm_ffi.so" in facts.needed
    assert facts.rpath == ()


def test_it_is_built_in_place_and_cleaned_up(tools: Path, project: Path) -> None:
    before = {path.relative_to(project) for path in project.rglob("*")}
    export_project(project)
    do(tools, "python", "setup.py", "-q", "build_ext", "--inplace", cwd=project)
    place = str(project / "tvm-ffi-ext")
    options = {"PYTHONPATH": place, "PYTHONDONTWRITEBYTECODE": "1"}
    assert do(tools, "python", "-c", USE, cwd=project, **options) == "[2.0, 2.0] False"
    remove_export(plan_removal(project))
    assert {path.relative_to(project) for path in project.rglob("*")} == before


def test_another_tvm_ffi_is_refused_in_words(tools: Path, project: Path, tmp_path: Path) -> None:
    export_project(project)
    other = tmp_path / "other"
    (other / "tvm_ffi").mkdir(parents=True)
    (other / "tvm_ffi/__init__.py").touch()
    (other / "apache_tvm_ffi-0.2.1.dist-info").mkdir()
    words = ["-S", project, "-B", tmp_path / "out", f"-DPython_EXECUTABLE={tools / 'bin/python'}"]
    done = run(tools, "cmake", *words, cwd=tmp_path, PYTHONPATH=str(other))
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "TVM FFI 0.1 is needed, found 0.2.1" in said
    assert "pip install 'apache-tvm-ffi==0.1.*'" in said


def test_cmake_builds_the_cuda_side(
    tools: Path, project: Path, cuda_settings: Settings, tmp_path: Path
) -> None:
    export_project(project)
    nvcc = get_cuda(cuda_settings).nvcc
    words = ["-S", project, "-B", tmp_path / "out", f"-DPython_EXECUTABLE={tools / 'bin/python'}"]
    options = ["-DKERNEL_BACKEND=cuda", f"-DCMAKE_CUDA_COMPILER={nvcc}", "-G", "Ninja"]
    do(tools, "cmake", *words, *options, cwd=tmp_path)
    do(tools, "cmake", "--build", tmp_path / "out", cwd=tmp_path)
    (library,) = tmp_path.glob("out/package/tvm_add/*.so")
    facts = read_elf(library)
    assert {"libtvm_ffi.so", "libcudart.so.13"} <= set(facts.needed)
    assert [each.name for each in facts.symbols if each.defined] == ["__tvm_ffi_add_one"]
