"""What a killed process leaves beside a bundle, or in the hub that one goes into, goes with the next."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernels.bundle.scratch import scratch_folder

HOLD = """
import sys
from pathlib import Path
from kernels.bundle.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1]), ".x.tar.") as folder:
    (folder / "much").mkdir()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that works in such a folder; returns it and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process, process.stdout.readline().strip()
        process.kill()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_goes_at_the_end_and_after_an_error(tmp_path):
    with scratch_folder(tmp_path, ".x.tar.") as folder:
        (folder / "file").touch()
    with pytest.raises(RuntimeError), scratch_folder(tmp_path, ".x.tar."):
        raise RuntimeError
    assert names(tmp_path) == []


def test_what_is_in_use_stays_and_what_a_killed_process_left_goes(tmp_path, holder):
    process, folder = holder
    with scratch_folder(tmp_path, ".x.tar."):
        assert os.path.isdir(f"{folder}/much")  # noqa: PTH112
    process.kill()
    process.wait()
    assert os.path.isdir(f"{folder}/much")  # noqa: PTH112
    with scratch_folder(tmp_path, ".x.tar.") as mine:
        assert names(tmp_path) == [mine.name]


def test_only_folders_of_that_name_are_touched(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".x.tar.link").symlink_to(elsewhere)
    (tmp_path / ".x.tar.file").write_text("mine")
    (tmp_path / ".x").mkdir()
    (tmp_path / ".x.tar.young").mkdir()
    for path in (tmp_path / ".x", elsewhere):
        os.utime(path, (0, 0))
    (tmp_path / ".x.tar.old").mkdir()
    os.utime(tmp_path / ".x.tar.old", (0, 0))
    with scratch_folder(tmp_path, ".x.tar."):
        pass
    assert names(tmp_path) == [".x", ".x.tar.file", ".x.tar.link", ".x.tar.young", "elsewhere"]


def test_where_there_are_no_locks_it_works_all_the_same(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with (
        scratch_folder(tmp_path, ".x.tar.") as first,
        scratch_folder(tmp_path, ".x.tar.") as second,
    ):
        assert names(tmp_path) == sorted([first.name, second.name])
