"""The hint about torch's headers in files for nvcc, and that our own kernels need none."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_builder.config.read import parse_build, read_build
from kernel_builder.device_headers import note_device_headers
from kernel_builder.plan import plan
from kernel_builder.planned import Host
from kernel_builder.scaffold import plan_project, render_project
from kernel_builder.sources import SourceFile, SourceSet, find_includes, read_sources
from kernel_spec.backend import BackendKind
from kernel_spec.system import TorchBuild
from kernel_spec.version import MajorMinor

OURS = sorted(
    path.parent for path in (Path(__file__).parents[3] / "kernels-community").glob("*/build.toml")
)
HOST = Host(
    cpu="x86_64",
    os="linux",
    torch=TorchBuild("2.13.0", MajorMinor(2, 13)),
    toolkits={BackendKind.CUDA: MajorMinor(13, 0)},
)
TEXT = """
[general]
name = "my-op"
version = 1
edition = 5
license = "MIT"
backends = ["cuda"]
[torch]
src = ["torch-ext/b.cpp"]
[kernel.a]
backend = "cuda"
depends = ["torch"]
include = ["inc"]
src = ["csrc/a.cu", "csrc/b.cu", "csrc/own.h", "inc/far.h", "csrc/host.cpp"]
"""
STABLE = "torch/csrc/stable/tensor.h"


def notes(text: str = TEXT, *, full: bool = False, **includes: tuple[str, ...]) -> list[str]:
    """Return what is said of a project whose files include these headers."""
    build = parse_build(text.encode())
    paths = (
        "csrc/a.cu",
        "csrc/b.cu",
        "csrc/own.h",
        "inc/far.h",
        "csrc/host.cpp",
        "torch-ext/b.cpp",
    )
    named = {path: includes.get(Path(path).name.replace(".", "_"), ()) for path in paths}
    files = tuple(
        SourceFile(
            path=path,
            sha256=path,
            includes=headers,
            full_abi_header="torch/all.h" if full and headers else None,
        )
        for path, headers in named.items()
    )
    made = plan(build, SourceSet(listed=files, extension=()), host=HOST)
    return [note for note in made.notes if "nvcc reads it" in note]


def test_host_files_may_include_torch() -> None:
    assert notes(host_cpp=(STABLE,), b_cpp=(STABLE,), a_cu=("cuda_runtime.h", "own.h")) == []
    assert notes(a_cu=("torch/headeronly/core/ScalarType.h",)) == []


@pytest.mark.parametrize(
    "includes",
    [
        {"a_cu": (STABLE,)},
        {"a_cu": ("own.h",), "own_h": (STABLE,)},
        {"a_cu": ("far.h",), "far_h": ("../csrc/own.h",), "own_h": ("far.h", STABLE)},
    ],
)
def test_a_file_for_nvcc_that_reads_torch_is_named(includes: dict[str, tuple[str, ...]]) -> None:
    (note,) = notes(**includes)
    assert f"csrc/a.cu includes {STABLE}; nvcc reads it for each architecture" in note


def test_several_files_are_one_note() -> None:
    (note,) = notes(a_cu=(STABLE,), b_cu=("own.h",), own_h=(STABLE,))
    assert "and so do 1 more" in note


def test_one_architecture_is_worth_no_word_but_for_the_full_headers() -> None:
    one = TEXT.replace('backend = "cuda"\n', 'backend = "cuda"\ncuda-capabilities = ["9.0a"]\n')
    assert notes(one, a_cu=(STABLE,)) == []
    assert len(notes(one, full=True, a_cu=("torch/all.h",))) == 1


@pytest.mark.parametrize("project", OURS, ids=lambda path: path.name)
def test_our_kernels_keep_torch_from_nvcc(project: Path) -> None:
    build = read_build(project)
    made = plan(build, read_sources(project, build), host=HOST)
    assert [note for note in made.notes if "nvcc reads it" in note] == []


@pytest.mark.parametrize("backends", [("cuda",), ("cpu", "cuda", "rocm")])
def test_new_projects_keep_torch_from_nvcc(backends: tuple[str, ...]) -> None:
    texts = render_project(plan_project(name="me/my-op", backends=backends, licence="MIT"))
    build = parse_build(texts["build.toml"].encode())
    files = tuple(
        SourceFile(path=path, sha256=path, includes=tuple(find_includes(text.encode())))
        for path, text in texts.items()
    )
    made = plan(build, SourceSet(listed=files, extension=()), host=HOST)
    (cuda,) = [each for each in made.variants if each.backend is BackendKind.CUDA]
    assert note_device_headers(files, cuda) == []
    # The test sees a header that is there.
    spoilt = tuple(
        replace(file, includes=(STABLE,)) if file.path.endswith(".cu") else file for file in files
    )
    assert len(note_device_headers(spoilt, cuda)) == 1
