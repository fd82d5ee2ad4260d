"""The tutorial's way of a kernel, by its commands: a project, pip, a sanity script, a hub, a lock, wheels."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

TUTORIAL = Path(__file__).parents[3] / "examples" / "seeds" / "img2gray"
SANITY = """
img2gray works on cpu: (48, 65, 3) -> (48, 65) torch.uint8
registered: _img2gray_cpu_{digits}.img2gray.default
one graph under torch.compile
"""
USE = """
import torch
from kernels import {loader}
picture = torch.tensor([[[200, 100, 50], [7, 7, 7]]], dtype=torch.uint8)
print({loader}("acme/img2gray"{options}).img2gray(picture).tolist())
"""
GREY = "[[117, 7]]\n"


@pytest.fixture(scope="module")
def author(run, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A directory with the project, made by ``init`` and filled with the tutorial's files."""
    home = tmp_path_factory.mktemp("author")
    run("kernel-builder", "init", "--name", "acme/img2gray", "--backends", "cpu", "cuda", cwd=home)
    project = home / "img2gray"
    for folder in ("csrc", "torch-ext"):
        shutil.rmtree(project / folder)
    shutil.copytree(TUTORIAL, project, dirs_exist_ok=True)
    hub = (home / "hub").as_uri()
    environ = {"KERNELS_HUB": hub, "KERNELS_CACHE": str(home / "cache")}
    return SimpleNamespace(home=home, project=project, hub=hub, environ=environ)


@pytest.fixture(scope="module")
def published(run, author: SimpleNamespace) -> SimpleNamespace:
    """The same project, built and published as v1.1.2."""
    run("kernel-builder", "build", ".", "--backend", "cpu", cwd=author.project)
    words = ("--repo-id", "acme/img2gray", "--hub", author.hub, "--tag", "v1.1.2")
    run("kernels", "upload", ".", *words, cwd=author.project)
    return author


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment of the author's, that sees the packages of this one."""
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    [site] = place.glob("lib/python3*/site-packages")
    here = sysconfig.get_paths()["purelib"]
    (site / "outer.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return place / "bin"


def test_build2cmake_pip_and_the_sanity_script(run, author, environment: Path) -> None:
    before = {path for path in author.project.rglob("*") if "__pycache__" not in path.parts}
    said = run("build2cmake", "generate-torch", "build.toml", cwd=author.project)
    assert "CMakeLists.txt" in said
    pip = (environment / "python", "-m", "pip", "install", "--no-build-isolation", "-e", ".")
    run(*pip, cwd=author.project)
    output = run(environment / "python", "scripts/sanity.py", cwd=author.project)
    [library] = (author.project / "torch-ext" / "img2gray").glob("*.so")
    digits = library.name.partition(".")[0].rpartition("_")[2]
    assert output == SANITY.lstrip().format(digits=digits)
    run("build2cmake", "clean", "build.toml", cwd=author.project)
    after = {path for path in author.project.rglob("*") if "__pycache__" not in path.parts}
    assert after - before == {path for path in after if "egg-info" in path.as_posix()}


@pytest.mark.parametrize(
    "options", ["", ', version=">=1.1,<2"', ', version="1.1.2"', ", version=1"]
)
def test_get_kernel(run, published, options: str) -> None:
    code = USE.format(loader="get_kernel", options=options)
    done = run(sys.executable, "-c", code, cwd=published.home, more=published.environ)
    assert done.endswith(GREY)


def test_a_lock_a_download_and_no_network(run, published, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "consumer"\nversion = "1"\n'
        '[tool.kernels.dependencies]\n"acme/img2gray" = ">=1.0.0,<2"\n'
    )
    run("kernels", "lock", ".", cwd=tmp_path, more=published.environ)
    [locked] = json.loads((tmp_path / "kernels.lock").read_text())["kernels"]
    assert len(locked["commit"]) == 40
    environ = published.environ | {"KERNELS_CACHE": str(tmp_path / "cache")}
    run("kernels", "download", ".", cwd=tmp_path, more=environ)
    without_hub = environ | {"KERNELS_HUB": (tmp_path / "none").as_uri(), "HF_HUB_OFFLINE": "1"}
    for loader in ("get_locked_kernel", "load_kernel"):
        script = tmp_path / f"{loader}.py"
        script.write_text(USE.format(loader=loader, options=""))
        assert run(sys.executable, script, cwd=tmp_path, more=without_hub).endswith(GREY)


def test_a_wheel_for_older_deployments(run, published, environment: Path, tmp_path: Path) -> None:
    words = ("kernels", "to-wheel", "acme/img2gray", "1.1.2", "--out", tmp_path)
    run(*words, cwd=published.home, more=published.environ)
    [wheel] = tmp_path.glob("*.whl")
    pip = (environment / "python", "-m", "pip", "install", "--no-index", "--no-deps", wheel)
    run(*pip, cwd=tmp_path)
    code = (
        "import torch, img2gray\n"
        "print(img2gray.img2gray(torch.full((1, 1, 3), 9, dtype=torch.uint8)).tolist())"
    )
    assert run(environment / "python", "-c", code, cwd=tmp_path) == "[[9]]\n"


def test_another_shape_is_an_error_that_names_it(run, published) -> None:
    code = (
        "import torch\nfrom kernels import get_kernel\n"
        'get_kernel("acme/img2gray").img2gray(torch.zeros(3, 4, 5, dtype=torch.uint8))'
    )
    said = run(sys.executable, "-c", code, cwd=published.home, more=published.environ, code=1)
    assert "ValueError: img2gray: input must have shape (H, W, 3)" in said
    assert "found (3, 4, 5) and torch.uint8" in said
