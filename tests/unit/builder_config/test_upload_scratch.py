"""Which branches that uploads made for a while are left over."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from kernel_builder import upload_scratch
from kernel_builder.upload_scratch import forget, holding, is_left_over, is_scratch, name_scratch
from kernel_spec.names import RepoId, ref_fault

URL, REPO = "https://hub.example", RepoId("acme", "toy")


def test_a_name_is_one_of_a_ref_and_says_when(tmp_path, monkeypatch) -> None:
    name = name_scratch("v12")
    assert (is_scratch(name), ref_fault(name)) == (True, None)
    assert name_scratch("v12") != name
    assert not is_left_over(tmp_path, URL, REPO, name)
    now = time.time() + upload_scratch.KEPT_SECONDS + 2
    monkeypatch.setattr(upload_scratch.time, "time", lambda: now)
    assert is_left_over(tmp_path, URL, REPO, name)


@pytest.mark.parametrize(
    "name", ["v1", "main", "uploading-v1", "uploading-v1-00ff", "uploading-x-y-z"]
)
def test_what_has_no_time_in_its_name_is_left_alone(tmp_path, name) -> None:
    assert not is_left_over(tmp_path, URL, REPO, name)


def test_one_that_is_under_way_is_not_left_over_and_leaves_no_lock(tmp_path) -> None:
    folder, name = tmp_path / "uploads", name_scratch("v1")
    with holding(folder, URL, REPO, name):
        assert len(list(folder.iterdir())) == 1
        assert not is_left_over(folder, URL, REPO, name)
    assert list(folder.iterdir()) == []
    assert not is_left_over(folder, URL, REPO, name)


KILLED = """
import os, sys
from pathlib import Path
from kernel_builder.upload_scratch import holding
from kernel_spec.names import RepoId
with holding(Path(sys.argv[1]), sys.argv[2], RepoId("acme", "toy"), sys.argv[3]):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_one_of_a_process_that_was_killed_is_left_over_at_once(tmp_path) -> None:
    name = name_scratch("v1")
    words = [sys.executable, "-c", KILLED, str(tmp_path), URL, name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert not is_left_over(tmp_path, URL, REPO, name)
        process.kill()
    assert is_left_over(tmp_path, URL, REPO, name)
    assert not is_left_over(tmp_path, "https://other.example", REPO, name)
    forget(tmp_path, URL, REPO, name)
    assert list(tmp_path.iterdir()) == []


def test_locks_of_branches_that_are_gone_do_not_pile_up(tmp_path) -> None:
    old, new = tmp_path / "old.lock", tmp_path / "new.lock"
    for place in (old, new):
        place.touch()
    os.utime(old, (1, 1))
    with holding(tmp_path, URL, REPO, name_scratch("v1")):
        assert not old.exists()
        assert new.exists()


def test_a_cache_that_cannot_be_written_stops_no_upload(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    name = name_scratch("v1")
    with holding(tmp_path / "file/uploads", URL, REPO, name):
        assert not is_left_over(tmp_path / "file/uploads", URL, REPO, name)


@pytest.mark.parametrize("error", [OSError(38, "Function not implemented"), NotImplementedError()])
def test_where_nothing_can_be_locked_nothing_is_taken_for_dead(
    tmp_path, monkeypatch, error
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    name = name_scratch("v1")
    with holding(tmp_path, URL, REPO, name):
        assert not is_left_over(tmp_path, URL, REPO, name)
        assert list(tmp_path.iterdir()) == []
