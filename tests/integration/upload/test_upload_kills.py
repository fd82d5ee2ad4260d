"""An upload over HTTP that is killed before or after each thing it says to the hub.

Whatever the moment: a version is there whole or not at all, the same command goes on, and nothing
of the killed one is left afterwards. Budget: 90 s.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

# The unmodified client, but for a kill at the n-th call of one of its methods.
KILLED = """
import os, signal, sys
from huggingface_hub import HfApi
name, number, moment = sys.argv[1], int(sys.argv[2]), sys.argv[3]
calls, original = [], getattr(HfApi, name)
def call(self, *words, **options):
    calls.append(name)
    if len(calls) == number and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = original(self, *words, **options)
    if len(calls) == number and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return answer
setattr(HfApi, name, call)
sys.argv[1:] = sys.argv[4:]
from kernel_builder.cli import main
main()
"""
STEPS = (
    ("create_repo", 1),
    ("create_branch", 1),
    ("create_commit", 1),
    ("create_branch", 2),
    ("delete_branch", 1),
    ("create_tag", 1),
    ("create_commit", 2),
)


@pytest.fixture
def environ(writable):
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(writable.home),
        "NO_PROXY": "*",
        "HF_ENDPOINT": writable.hub.url,
        "HF_TOKEN": writable.token,
    }


def left(branches):
    return [name for name in branches if name.startswith("uploading-")]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0]}-{step[1]}")
def test_a_first_upload_that_is_killed(writable, checkout, environ, step, moment):
    kernel = checkout("a")
    words = ["upload", str(kernel.place), "--tag", "v1.0.0"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, step), moment, *words],
        env=environ,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    complete = {"README.md", "benchmarks/benchmark.py", "build/torch-cpu/metadata.json"}
    if (writable.root / "acme/toy").exists():
        version = writable.whole().get("v1")
        assert version is None or complete <= version.keys()
    again = subprocess.run(
        [sys.executable, "-c", "from kernel_builder.cli import main; main()", *words, "--json"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert again.returncode == 0, again.stderr
    found = writable.whole()
    assert complete <= found["v1"].keys()
    assert found["main"].keys() == {"README.md"}
    assert left(found) == [], json.loads(again.stdout)["plan"]


def test_another_machine_leaves_what_may_be_under_way(writable, checkout, environ, tmp_path):
    kernel = checkout("a")
    words = ["upload", str(kernel.place)]
    killed = [sys.executable, "-c", KILLED, "create_commit", "1", "after", *words]
    subprocess.run(killed, env=environ, capture_output=True, check=False, timeout=60)
    [branch] = left(writable.whole())
    done = subprocess.run(
        [sys.executable, "-c", "from kernel_builder.cli import main; main()", *words],
        env=environ | {"HOME": str(tmp_path / "elsewhere")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert f"note: the branch {branch} is of an upload that is under way" in done.stdout
    assert left(writable.whole()) == [branch]


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
from kernel_builder.cli import main
main()
"""


def test_a_folder_without_room_is_told_of_and_stays_as_it_was(writable, checkout, environ):
    """No file may grow beyond 2 MB: to the command that is a disk that is full."""
    kernel, url = checkout("a"), writable.root.as_uri()
    words = ["upload", str(kernel.place), "--hub", url]

    def upload(code):
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert upload(FULL).returncode == 0
    before = writable.whole()
    kernel.configure(version=2)
    kernel.write("torch-ext/toy/__init__.py", f'TABLE = """{"x" * 3_000_000}"""\n')
    kernel.build()
    full = upload(FULL)
    assert (full.returncode, full.stderr.count("\n")) == (1, 1), full.stderr
    assert full.stderr.startswith("error: ")
    assert "cannot publish there (File too large)" in full.stderr
    assert writable.whole() == before
    assert not (writable.root / "acme/toy/.staging").exists()
    assert upload("from kernel_builder.cli import main; main()").returncode == 0
    assert writable.whole().keys() == {"main", "v1", "v2"}
