"""``kernels doctor --launch``: what a kernel does to a process is seen before it does it to the user's.

Time budget: 60 s.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy_variant import write_toy_metadata

from kernel_spec import publishing
from kernel_spec.directory import DirectoryHub
from kernel_spec.names import RepoId
from kernels.trial import try_kernel

SOURCE = Path(__file__).parents[3] / "src"
INIT = "def double(x):\n    return x + x\n"
CASES = """
import torch
from kernels.bench import Case

def cases(kernel, device):
    x = torch.ones(4, device=device)
    yield Case(op="double", shape=(4,), dtype="float32", tolerance=0.0,
               ours=lambda: kernel.double(x), expected=lambda: 2 * x)
    raise AssertionError("only the first case is run")
"""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = DirectoryHub(tmp_path / "hub")
    hub.root.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELS_HUB", f"file://{hub.root}")
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    return hub


def publish(hub, init, cases=CASES):
    project = hub.root.parent / "project"
    variant = project / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text(init)
    write_toy_metadata(variant)
    if cases:
        (project / "benchmarks").mkdir()
        (project / "benchmarks" / "benchmark.py").write_text(cases)
    files = {p.relative_to(project).as_posix(): p for p in project.rglob("*") if p.is_file()}
    publishing.publish(hub, RepoId("acme", "toy"), files, branch="v1", parent=None)


def doctor(*options):
    return subprocess.run(
        [sys.executable, "-m", "kernels", "doctor", "acme/toy", "--launch", *options],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )


def test_a_kernel_that_works_says_what_was_run(hub):
    publish(hub, INIT)
    done = doctor()
    assert done.returncode == 0, done.stderr
    assert "run double 4 float32 on cpu: ok" in done.stdout
    done = doctor("--json")
    trial = json.loads(done.stdout)["trial"]
    assert trial == {"steps": ["load it", "run double 4 float32 on cpu"], "fault": None}


def test_one_without_benchmarks_is_loaded_and_that_is_said(hub):
    publish(hub, INIT, cases="")
    done = doctor()
    assert done.returncode == 0, done.stderr
    assert "nothing to launch" in done.stdout


@pytest.mark.parametrize(
    ("init", "step", "end"),
    [
        # kernels 707: exit(1) at the first launch, without a traceback.
        ("import os\n\ndef double(x):\n    os._exit(1)\n", "run double", "exit code 1"),
        # kernels 312: a crash on import.
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
            "load it",
            "signal SIGSEGV",
        ),
        # nanochat 820: no kernel image, once the loader has reported success.
        (
            "def double(x):\n    raise RuntimeError('no kernel image is available')\n",
            "run double",
            "no kernel image is available",
        ),
    ],
)
def test_how_a_process_ended_is_told_and_the_doctor_lives(hub, init, step, end):
    publish(hub, init)
    done = doctor()
    assert done.returncode == 1
    [cause] = [line for line in done.stdout.splitlines() if line.startswith("cause: ")]
    assert f"it failed to {step}" in cause
    assert end in done.stdout
    assert "Traceback" not in done.stderr


def test_one_that_hangs_is_given_up(hub):
    publish(hub, "import time\ntime.sleep(600)\n")
    trial = try_kernel("acme/toy", seconds=6)
    assert trial.steps == ("load it",)
    assert trial.fault == "no end after 6 s"


def test_a_folder_of_the_same_name_is_not_taken_for_the_package(hub, tmp_path, monkeypatch):
    """transformers 42004: a folder kernels/ in the current folder."""
    publish(hub, INIT)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(tmp_path)
    assert try_kernel("acme/toy").fault is None
