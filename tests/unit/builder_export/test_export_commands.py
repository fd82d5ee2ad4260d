"""The commands: what they print, and how they end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernel_builder import cli


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*words: object, main=cli.main) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["x", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def test_both_doors_write_the_same(call, project: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    code, out, _ = call(
        "generate-torch", project / "build.toml", old, "--ops-id", "x", main=cli.build2cmake
    )
    assert code == 0
    assert f"{old / 'CMakeLists.txt'}\n" in out
    assert out.endswith(f"next: pip install --no-build-isolation -e {old}\n")
    assert call("create-pyproject", project, new, "--unique-id", "x")[0] == 0
    for path in old.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (new / path.relative_to(old)).read_bytes()


def test_one_backend(call, project: Path) -> None:
    code, out, _ = call("create-pyproject", project, "--backend", "cuda")
    assert (code, "cuda; next" in out, "cpu" in out) == (0, True, False)
    assert call("create-pyproject", project, "--backend", "xpu")[0] == 2
    code, _, err = call("create-pyproject", project, "--backend", "cdua")
    assert code == 2
    assert 'did you mean "cuda"?' in err


def test_a_dry_run_removes_nothing(call, project: Path) -> None:
    call("create-pyproject", project)
    code, out, _ = call("clean-pyproject", project, "--dry-run")
    assert code == 0
    assert f"would remove {project / 'setup.py'}\n" in out
    assert (project / "setup.py").exists()


def test_a_project_that_cannot_be_read_any_more_is_cleaned(call, project: Path) -> None:
    call("create-pyproject", project)
    (project / "build.toml").write_text("[")
    code, out, _ = call("clean", project / "build.toml", main=cli.build2cmake)
    assert code == 0
    assert f"removed {project / 'CMakeLists.txt'}\n" in out
    assert call("clean-pyproject", project)[1].endswith(
        "nothing here was written by kernel-builder\n"
    )


def test_faults_are_wrong_usage(call, project: Path, tmp_path: Path) -> None:
    assert call("create-pyproject", tmp_path / "nowhere")[0] == 2
    (project / "setup.py").write_text("")
    code, out, err = call("create-pyproject", project)
    assert (code, out) == (2, "")
    assert "--force" in err
    assert call("create-pyproject", project, "--force")[0] == 0
    (project / "setup.py").write_text("")
    assert call("clean-pyproject", project)[0] == 2
    assert call("clean-pyproject", project, "--dry-run")[1].endswith("which was changed since\n")
    assert call("clean-pyproject", project, "-f")[0] == 0


def test_what_follows_two_dashes_is_the_command(
    call, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_builder import shell

    seen = []
    monkeypatch.setattr(shell, "prepare_shell", lambda request, *_, **__: seen.append(request))
    monkeypatch.setattr(shell, "run_shell", lambda _: sys.exit(7))
    words = ["--with", "numpy", "--torch", "2.13.0", "--", "python", "--variant", "x", "--", "-h"]
    assert call("testshell", project, *words)[0] == 7
    assert call("devshell", project, "--variant", "v")[0] == 7
    first, second = seen
    assert first.command == ("python", "--variant", "x", "--", "-h")
    assert (first.project, first.torch, first.extras) == (project, "2.13.0", ("numpy",))
    assert (first.tests, first.variant) == (True, None)
    assert (second.tests, second.variant, second.command) == (False, "v", ())
