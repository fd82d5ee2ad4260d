"""The demo does the whole main job: build, publish, load in a new process, show the result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    output = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", output],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done, output


def test_it_builds_publishes_and_downloads_both_kernels(demo):
    _, output = demo
    traces = json.loads((output / "load.json").read_text())["traces"]
    assert [trace["kernel"] for trace in traces] == ["activation", "img2gray"]
    assert all(trace["downloaded"] for trace in traces)
    published = {path.name for path in (output / "hub" / "kernels-community").iterdir()}
    assert {name for name in published if name[0] != "."} == {"activation", "img2gray"}


def test_it_shows_where_the_time_of_a_load_went(demo):
    done, _ = demo
    for phase in ("locate", "choose", "install", "import"):
        assert phase in done.stdout


def test_the_photograph_is_grey_and_right(demo):
    _, output = demo
    grey = Image.open(output / "grey.png")
    assert grey.mode == "L"
    picture = json.loads((output / "load.json").read_text())["picture"]
    assert (picture["width"], picture["height"]) == grey.size
    assert picture["largest_difference"] <= 1


def test_lines_are_plain_where_there_is_no_terminal(demo):
    done, _ = demo
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
