"""The commit in a variant's metadata: named only where it holds every file of the project."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from lacking import require_commands

from kernel_builder.provenance import describe_origin, find_commit
from kernel_builder.settings import Settings, read_settings
from kernel_builder.sources import SourceFile, SourceSet

SOURCES = SourceSet(
    listed=(SourceFile(path="csrc/a.cpp", sha256=""),),
    extension=(SourceFile(path="torch-ext/k/__init__.py", sha256=""),),
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    require_commands("git")
    return read_settings({"PATH": os.environ["PATH"], "HOME": str(tmp_path)})


def git(place: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    place = root / "kernels" / "k"
    for path in ("build.toml", "csrc/a.cpp", "torch-ext/k/__init__.py"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text("1")
    git(tmp_path, "init", "-q", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return place


def test_a_clean_project_names_its_commit(project: Path, settings: Settings) -> None:
    commit = git(project, "rev-parse", "HEAD")
    origin = describe_origin(project, SOURCES, settings)
    assert (origin.kernel_commit, origin.kernel_dirty) == (commit, False)


def test_a_commit_elsewhere_changes_nothing(project: Path, settings: Settings) -> None:
    before = find_commit(project, SOURCES, settings)
    (project.parents[1] / "README").write_text("more")
    git(project.parents[1], "add", ".")
    git(project, "commit", "-qm", "two")
    (project.parents[1] / "README").write_text("changed and not committed")
    assert find_commit(project, SOURCES, settings) == before
    (project / "csrc" / "a.cpp").write_text("2")
    git(project, "commit", "-qam", "three")
    assert find_commit(project, SOURCES, settings) == git(project, "rev-parse", "HEAD") != before


def test_what_was_built_does_not_make_it_dirty(project: Path, settings: Settings) -> None:
    (project / "build" / "v").mkdir(parents=True)
    (project / "build" / "v" / "a.so").write_text("")
    assert find_commit(project, SOURCES, settings) is not None


def test_a_dirty_project_names_none(project: Path, settings: Settings) -> None:
    place = project / "csrc" / "a.cpp"
    place.write_text("2")
    assert find_commit(project, SOURCES, settings) is None
    git(project, "add", ".")
    assert find_commit(project, SOURCES, settings) is None
    place.write_text("1")
    git(project, "add", ".")
    (project / "new.h").write_text("")
    assert find_commit(project, SOURCES, settings) is None


def test_an_ignored_file_that_is_built_from_is_in_no_commit(
    project: Path, settings: Settings
) -> None:
    git(project, "rm", "-q", "--cached", "csrc/a.cpp")
    (project / ".gitignore").write_text("csrc/a.cpp\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "two")
    assert git(project, "status", "--porcelain") == ""
    assert find_commit(project, SOURCES, settings) is None


def test_outside_of_git(project: Path, settings: Settings, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(project, tmp_path / "copy"))
    origin = describe_origin(copy, SOURCES, settings)
    assert (origin.kernel_commit, origin.kernel_dirty) == (None, None)


def test_names_that_git_would_quote(project: Path, settings: Settings) -> None:
    odd = SourceFile(path='csrc/ünï "x".h', sha256="")
    (project / odd.path).write_text("")
    git(project, "add", ".")
    git(project, "commit", "-qm", "two")
    sources = SourceSet(listed=(odd,), extension=())
    assert find_commit(project, sources, settings) is not None


def test_without_git(project: Path, tmp_path: Path) -> None:
    nowhere = read_settings({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert find_commit(project, SOURCES, nowhere) is None
