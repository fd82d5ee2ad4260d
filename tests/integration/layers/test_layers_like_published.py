"""The layer interface of the published client, call by call, against ours. Budget: see conftest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy_variant import write_toy_metadata

BOTH = Path(__file__).parent / "consumers" / "both.py"
TIMES = """
class Times{n}(nn.Module):
    can_torch_compile = True

    def forward(self, x):
        return {n} * x
"""
SOURCE = (
    "from torch import nn\n"
    + "".join(TIMES.format(n=n) for n in (2, 3, 5, 7, 11))
    + """
class OnlyEager(nn.Module):
    def forward(self, x):
        return 2 * x

class NoBackward(nn.Module):
    can_torch_compile = True
    has_backward = False

    def forward(self, x):
        return 2 * x

class TwoArguments(nn.Module):
    def forward(self, x, y):
        return x

class HasInit(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return 2 * x
"""
)

# Where ours differs on purpose: what the published client says, and what we do.
DIFFERENCES = {
    # A kernel that is registered for compiling and cannot be compiled still infers without it.
    "wanted I, registered IC, OnlyEager": (["ValueError"], 2.0),
    "wanted T, registered TC, OnlyEager": (["ValueError"], 2.0),
    "wanted I, registered TC, OnlyEager": (["ValueError"], 2.0),
    "wanted I, registered T, NoBackward": (["ValueError"], 2.0),
    "wanted I, registered TC, NoBackward": (["ValueError"], 2.0),
    "wanted IC, registered TC, NoBackward": (["ValueError"], 2.0),
}
# Who allows a layer its own forward where its kernel cannot be loaded allows it where it does not fit.
DIFFERENCES |= {
    f"{case}, KernelizeFallback.{flag}": ([error], 1.0)
    for flag in ("CANNOT_LOAD", "ALL")
    for case, error in (
        ("no such layer", "ValueError"),
        ("too many arguments", "TypeError"),
        ("has an init", "TypeError"),
    )
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = tmp_path_factory.mktemp("times")
    variant = project / "build" / "torch-cpu"
    variant.mkdir(parents=True)
    (variant / "__init__.py").write_text(
        "from . import layers\n\ndef times13(x):\n    return 13 * x\n"
    )
    (variant / "layers.py").write_text(SOURCE)
    write_toy_metadata(variant, "times")
    return project


def answers(python, project, tmp_path):
    keep = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG") if name in os.environ}
    settings = {"HOME": str(tmp_path), "KERNEL": str(project), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, BOTH],
        check=False,
        env=keep | settings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def is_as_good(ours, theirs):
    """An error must be of every kind that callers of the published client catch."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return set(theirs) <= set(ours)
    return ours == theirs


def test_every_call_gives_what_the_published_client_gives(reference, project, tmp_path):
    theirs = answers(reference.folder / "bin" / "python", project, tmp_path)
    ours = answers(sys.executable, project, tmp_path)
    assert list(ours) == list(theirs)
    different = {
        key: (theirs[key], ours[key]) for key in ours if not is_as_good(ours[key], theirs[key])
    }
    assert different == DIFFERENCES
    assert len(ours) > 100
