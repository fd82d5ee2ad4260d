"""What init writes for TVM FFI."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.card import fill_card
from kernel_builder.cli.init import init
from kernel_builder.config.model import TvmFfiFramework
from kernel_builder.config.read import read_build
from kernel_builder.errors import ScaffoldError
from kernel_builder.plan import plan
from kernel_builder.planned import Host
from kernel_builder.scaffold import plan_project, render_project, write_project
from kernel_builder.sources import read_sources
from kernel_spec.backend import BackendKind
from kernel_spec.version import MajorMinor

HOST = Host(cpu="x86_64", os="linux", torch=None, toolkits={BackendKind.CUDA: MajorMinor(13, 0)})


@pytest.mark.parametrize("backends", [("cpu",), ("cuda",), ("cpu", "cuda"), ("all",)])
def test_a_new_project_has_no_faults_and_a_variant_for_each_backend(
    tmp_path: Path, backends: tuple[str, ...]
) -> None:
    new = plan_project(name="me/my-op", backends=backends, licence="MIT", framework="tvm-ffi")
    files = write_project(new, tmp_path / "new")
    build = read_build(tmp_path / "new")
    assert isinstance(build.framework, TvmFfiFramework)
    assert build.doubts == ()
    assert sorted(files) == files
    # The gate calls ops of torch.
    assert "tests/gate.py" not in files
    assert not [path for path in files if path.startswith("torch-ext")]
    made = plan(build, read_sources(tmp_path / "new", build), host=HOST)
    assert made.skipped == made.notes == ()
    names = {"cpu", "cuda"} if backends == ("all",) else set(backends)
    assert {each.backend.value for each in made.variants} == names
    for path, text in render_project(new).items():
        assert text.endswith("\n"), path
        assert not text.endswith("\n\n"), path
        assert "{%" not in text or path == "CARD.md"
        if path.endswith(".py"):
            ast.parse(text, path)
    # TVM FFI has no dispatcher: memory of numpy needs the functions for the CPU, whatever is here.
    named = 'get_kernel("me/my-op", version=1, backend="cpu")'
    assert (named in fill_card(tmp_path / "new")) is ("cpu" in names)
    # What is made is not checked in.
    assert "tvm-ffi-ext/my_op/_ops.py" in (tmp_path / "new/.gitignore").read_text()


def test_backends_that_there_are_no_sources_for_are_refused() -> None:
    with pytest.raises(ScaffoldError, match="--backends rocm: there are no example sources"):
        plan_project(name="me/my-op", backends=["rocm"], licence="MIT", framework="tvm-ffi")


def test_init_says_what_the_tests_need_and_where_words_contradict(tmp_path: Path) -> None:
    line = ["--name", "me/my-op", "--framework", "tvm-ffi", str(tmp_path / "new")]
    done = CliRunner().invoke(init, line)
    assert done.exit_code == 0, done.output
    assert "tvm-ffi-ext/my_op/__init__.py" in done.output
    done = CliRunner().invoke(init, [*line, "--noarch"])
    assert done.exit_code == 2
    assert "--noarch is --framework torch-noarch, found tvm-ffi" in done.output
    done = CliRunner().invoke(init, ["--name", "me/op", "--framework", "tvm"])
    assert done.exit_code == 2
    assert "tvm-ffi" in done.output
