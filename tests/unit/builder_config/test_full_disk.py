"""What a full disk does to the commands that write files of a project: told as a failure, nothing half-done."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_builder import cli
from kernel_builder.scaffold import plan_project, write_project

OLD = """\
[general]
name = "abc"

[torch]
src = ["torch-ext/torch_binding.cpp"]

[kernel.k]
language = "cuda-hipify"
depends = ["torch"]
src = ["a.cu"]
"""


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let no file come to its place any more."""

    def refuse(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self), None, str(target))

    return lambda: monkeypatch.setattr(Path, "replace", refuse)


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "command",
    ["init new --name me/new", "fill-card old CARD.out", "update-build older --yes --license MIT"],
)
def test_a_full_disk_is_a_failure_and_no_wrong_usage(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fill: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_project(plan_project(name="me/old", backends=[], licence="MIT"), tmp_path / "old")
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "build.toml").write_text(OLD)
    before = tree(tmp_path)
    fill()
    monkeypatch.setattr(sys, "argv", ["kernel-builder", *command.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert os.strerror(errno.ENOSPC) in capsys.readouterr().err
    assert tree(tmp_path) == before
