"""What init writes, what it refuses, and that it writes all or nothing."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernel_builder.card import fill_card
from kernel_builder.cli.init import init, spread
from kernel_builder.config.model import TorchNoarch
from kernel_builder.config.read import read_build
from kernel_builder.errors import ScaffoldError, StorageError
from kernel_builder.scaffold import (
    plan_project,
    render_project,
    start_repository,
    write_project,
)
from kernel_builder.settings import read_settings
from kernel_spec.backend import BackendKind

COMBINATIONS = [
    ("cpu",),
    ("cuda",),
    ("rocm",),
    ("metal",),
    ("xpu",),
    ("cpu", "cuda"),
    ("cuda", "rocm"),
    ("cpu", "cuda", "metal", "rocm", "xpu"),
]
SOURCES = {
    "cpu": ["cpu.cpp"],
    "cuda": ["cuda.cu", "cuda.cpp", "launch.h"],
    "rocm": ["cuda.cu", "cuda.cpp", "launch.h"],
    "metal": ["metal.metal", "metal.mm"],
    "xpu": ["xpu.cpp"],
}


def project(*backends: str, noarch: bool = False):
    framework = "torch-noarch" if noarch else "torch"
    return plan_project(name="me/my-op", backends=backends, licence="MIT", framework=framework)


@pytest.mark.parametrize("backends", COMBINATIONS)
def test_what_is_written_is_a_project_without_faults(tmp_path: Path, backends) -> None:
    files = write_project(project(*backends), tmp_path / "new")
    build = read_build(tmp_path / "new")
    assert [kind.value for kind in build.general.backends] == list(backends)
    assert str(build.general.repo_id) == "me/my-op"
    assert build.general.license == "MIT"
    assert sorted(files) == files
    assert build.doubts == ()
    expected = sorted({f"csrc/my_op_{end}" for name in backends for end in SOURCES[name]})
    assert [path for path in files if path.startswith("csrc/")] == expected
    assert {path for each in build.components for path in each.src} == set(expected)


def test_a_project_of_triton_has_nothing_to_compile(tmp_path: Path) -> None:
    files = write_project(project(noarch=True), tmp_path / "new")
    build = read_build(tmp_path / "new")
    assert isinstance(build.framework, TorchNoarch)
    assert [kind.value for kind in build.general.backends] == ["cpu", "cuda", "rocm"]
    assert [path for path in files if path.startswith(("csrc/", "torch-ext/"))] == [
        "torch-ext/my_op/__init__.py",
        "torch-ext/my_op/triton_add_one.py",
    ]
    with pytest.raises(ScaffoldError, match="--backends metal: Triton has no code for it"):
        project("metal", noarch=True)
    assert project("all", noarch=True).backends[-1] is BackendKind.XPU


@pytest.mark.parametrize(
    ("backends", "guard"),
    [
        (("cuda",), "#if defined(CUDA_KERNEL)"),
        (("rocm",), "#if defined(ROCM_KERNEL)"),
        (("rocm", "cuda"), "#if defined(CUDA_KERNEL) || defined(ROCM_KERNEL)"),
    ],
)
def test_a_binding_registers_what_its_variant_has(backends, guard: str) -> None:
    text = render_project(project(*backends))["torch-ext/torch_binding.cpp"]
    assert [line for line in text.splitlines() if line.startswith("#if")] == [guard]
    assert "CPU, ops" not in text


@pytest.mark.parametrize(
    "new",
    [*(project(*backends) for backends in COMBINATIONS), project(noarch=True)],
    ids=lambda new: "-".join(new.backends) + "-noarch" * new.noarch,
)
def test_every_python_file_parses_and_every_file_ends_in_a_newline(new) -> None:
    for path, text in render_project(new).items():
        assert text.endswith("\n"), path
        assert not text.endswith("\n\n"), path
        assert "{%" not in text or path == "CARD.md"
        if path.endswith(".py"):
            ast.parse(text, path)


@pytest.mark.parametrize("noarch", [False, True])
def test_what_is_for_the_cpu_alone_is_asked_for_under_any_torch(tmp_path: Path, noarch) -> None:
    """Else a torch for CUDA, which is what most people have, would be told that nothing fits."""
    alone = tmp_path / "alone"
    write_project(project("cpu", noarch=noarch), alone)
    loads = 'get_kernel("me/my-op", version=1, backend="cpu")'
    assert loads in (alone / "example.py").read_text()
    assert loads in (alone / "tests/test_my_op.py").read_text()
    assert loads in fill_card(alone)
    both = tmp_path / "both"
    write_project(project("cpu", "cuda", noarch=noarch), both)
    for text in ((both / "example.py").read_text(), fill_card(both)):
        assert 'get_kernel("me/my-op", version=1)' in text
    # An author who adds a backend gets a card that leaves the choice to the loader.
    config = alone / "build.toml"
    config.write_text(config.read_text().replace('["cpu"]', '["cpu", "cuda"]'))
    assert loads not in fill_card(alone)


@pytest.mark.parametrize("name", ["class", "import", "pytest"])
def test_a_kernel_may_be_called_like_a_keyword_or_a_package(name: str) -> None:
    new = plan_project(name=f"me/{name}", backends=["cpu"], licence="MIT")
    for path, text in render_project(new).items():
        if path.endswith(".py"):
            assert f"{name} =" not in text
            ast.parse(text, path)


def test_nothing_is_written_where_one_file_is_there(tmp_path: Path) -> None:
    (tmp_path / "CARD.md").write_text("mine")
    with pytest.raises(ScaffoldError, match=r"(?s)CARD\.md.*--overwrite") as caught:
        write_project(project(), tmp_path)
    assert caught.value.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["CARD.md"]
    write_project(project(), tmp_path, overwrite=True)
    assert (tmp_path / "CARD.md").read_text() != "mine"


def test_what_else_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    write_project(project(), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert [
        path for path in tmp_path.parent.iterdir() if path.name.startswith(f".{tmp_path.name}")
    ] == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScaffoldError, match="this is a file"):
        write_project(project(), tmp_path / "file")
    with pytest.raises(StorageError, match="cannot write"):
        write_project(project(), tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-op", "expected OWNER/REPO, such as <your name>/my-op"),
        ("me/My_Op", 'did you mean "me/my-op"'),
        ("me/op_x", 'did you mean "me/op-x"'),
        ("me/x", "at least two"),
        ("me/a/b", "--name me/a/b"),
        ("/op", "--name /op"),
        ("me/-op", "--name me/-op"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        plan_project(name=name, backends=["cpu"], licence="MIT")


def test_owners_may_have_capitals() -> None:
    assert str(plan_project(name="Me/op-x", backends=["cpu"], licence="MIT").repo_id) == "Me/op-x"


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ScaffoldError) as caught:
        plan_project(name="op", backends=["cdua", "tpu"], licence=" ")
    text = str(caught.value)
    assert len(text.splitlines()) == 4
    assert 'no backend "cdua"; did you mean "cuda"?' in text
    assert "there are no example sources for it; expected one of cpu, cuda, rocm" in text


def test_backends_are_read_however_they_are_given() -> None:
    both = (BackendKind.CPU, BackendKind.CUDA)
    for texts in (["cuda", "cpu"], ["cpu,cuda"], ["all"], ["cpu", "cuda", "cpu"]):
        assert plan_project(name="me/op", backends=texts, licence="MIT").backends == both


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--backends cpu gpu", "--backends cpu --backends gpu"),
        ("--backends cpu cuda", "--backends cpu --backends cuda"),
        ("--backends cpu cuda --license MIT", "--backends cpu --backends cuda --license MIT"),
        ("--backends cpu cuda ./here", "--backends cpu --backends cuda ./here"),
        ("here --backends cpu", "here --backends cpu"),
        ("--backends cpu cdua", "--backends cpu --backends cdua"),
        ("--backends nonsense", "--backends nonsense"),
        ("--name a/b here", "--name a/b here"),
        ("--backends cpu -- cuda", "--backends cpu -- cuda"),
    ],
)
def test_values_after_one_flag(line: str, expected: str) -> None:
    assert spread(line.split(), "--backends") == expected.split()


@pytest.mark.parametrize("name", ["torch", "triton"])
def test_a_kernel_is_not_called_like_what_it_imports(name: str) -> None:
    """In such a kernel ``import torch`` would be the kernel itself."""
    with pytest.raises(ScaffoldError, match=f'did you mean "me/my-{name}"'):
        plan_project(name=f"me/{name}", backends=["cpu"], licence="MIT")


def test_a_backend_that_there_is_none_of() -> None:
    with pytest.raises(ScaffoldError, match='no backend "gpu"; expected one of cpu, cuda, rocm'):
        plan_project(name="me/my-op", backends=["gpu"], licence="MIT")


def git_status(place: Path) -> list[str]:
    done = subprocess.run(
        ["git", "status", "--porcelain"], cwd=place, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_new_project_is_a_repository_with_its_files_added(tmp_path: Path) -> None:
    files = write_project(project(), tmp_path / "new")
    (tmp_path / "new/mine.txt").touch()
    said = start_repository(tmp_path / "new", files, read_settings())
    assert said.startswith("git: a new repository")
    assert git_status(tmp_path / "new") == [*(f"A  {path}" for path in files), "?? mine.txt"]


def test_a_repository_around_a_new_project_is_left_alone(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    files = write_project(project(), tmp_path / "new")
    assert "in a repository already" in start_repository(tmp_path / "new", files, read_settings())
    assert git_status(tmp_path) == ["?? new/"]


def test_without_git_there_is_a_project_all_the_same(tmp_path: Path) -> None:
    files = write_project(project(), tmp_path / "new")
    said = start_repository(tmp_path / "new", files, read_settings({"PATH": str(tmp_path)}))
    assert said.startswith("git: no repository was made")


def test_init_says_what_cannot_be_built_here(tmp_path: Path) -> None:
    line = ["--name", "me/my-op", "--backends", "cpu", "rocm", "metal", str(tmp_path / "new")]
    done = CliRunner().invoke(init, line)
    assert done.exit_code == 0, done.output
    assert "\nrocm: its files are written, but it is not built here: needs hipcc" in done.output
    assert "\nmetal: its files are written, but it is not built here: needs macOS" in done.output
