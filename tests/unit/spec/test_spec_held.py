"""A lock that says that a process works on something."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernel_spec.held import try_hold

HOLD = """
import sys
from pathlib import Path
from kernel_spec.held import try_hold
with try_hold(Path(sys.argv[1])) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def test_one_holds_it_until_it_is_done(tmp_path):
    place = tmp_path / "lock"
    with try_hold(place) as first:
        with try_hold(place) as second:
            assert (first, second) == (True, False)
        with try_hold(place) as third:
            assert not third, "who did not get it does not give it back"
    with try_hold(place) as later:
        assert later


def test_it_goes_with_the_process_that_is_killed(tmp_path):
    place = tmp_path / "lock"
    words = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"True\n"
        with try_hold(place) as held:
            assert not held
        process.kill()
        process.wait()
        with try_hold(place) as held:
            assert held


def test_what_cannot_be_locked_is_held_by_nobody_and_stops_nobody(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with try_hold(tmp_path / "file" / "lock") as held:
        assert not held

    def refuse(*_args, **_kwargs):
        raise NotImplementedError

    monkeypatch.setattr("filelock.FileLock.acquire", refuse)
    with try_hold(tmp_path / "lock") as held:
        assert not held


def test_an_error_of_the_body_comes_out_and_frees_it(tmp_path):
    with pytest.raises(OSError, match="mine"), try_hold(tmp_path / "lock"):
        raise OSError("mine")
    with try_hold(tmp_path / "lock") as held:
        assert held


FORK = """
import os, sys, threading
from pathlib import Path
from kernel_spec.held import try_hold
begun = threading.Event()
def work():
    with try_hold(Path(sys.argv[1])):
        begun.set()
        threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
begun.wait()
if os.fork() == 0:
    print(os.getpid(), flush=True)  # by now it has let go of what it has from its parent
    sys.stdin.read()
    os._exit(0)
threading.Event().wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_that_was_forked_meanwhile_does_not_hold_it(tmp_path):
    """Such as a worker that outlives a trainer: others would wait for it as for who installs."""
    place = tmp_path / "lock"
    words = [sys.executable, "-c", FORK, str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        child = int(process.stdout.readline())
        with try_hold(place) as held:
            assert not held
        process.kill()
        process.wait()
        os.kill(child, 0)
        with try_hold(place) as held:
            assert held
